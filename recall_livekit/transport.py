"""What a live call needs of the other side: the engine in this process, or later a server's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .engine.liveness import Liveness
from .engine.requests import Ack, Acquire, Grant, Reading
from .engine.runs import Origin
from .models import Outcome, Partial, Record

__all__ = ["Transport"]


class Transport(Protocol):
    """The requests of one worker. `Engine` answers them in this process and documents them."""

    async def read(self, call: str, origin: Origin | None = None) -> Reading:
        """Return the call as a worker of this origin should see it, or, without one, as it is."""

    async def wait_free(self, call: str) -> Liveness:
        """Return once the call has no live holder."""

    async def acquire(self, call: str, request: Acquire) -> Grant:
        """Take the lease."""

    async def renew(self, call: str, writer: str, epoch: int) -> None:
        """Show that the holder lives."""

    async def release(self, call: str, writer: str, epoch: int, outcome: Outcome) -> None:
        """Give the lease back."""

    async def hold_lock(self, name: str) -> str | None:
        """Begin the sign of life that a lease names; None if there is no such thing."""

    async def let_go_lock(self, name: str | None) -> None:
        """End the sign of life."""

    async def wait_taken(self, name: str | None) -> None:
        """Return when the lease that names this sign of life was taken. May never return."""

    async def append(
        self, call: str, writer: str, first: int, records: Sequence[Record], epoch: int
    ) -> Ack:
        """Append records under the lease."""

    async def append_provisional(
        self,
        call: str,
        writer: str,
        first: int,
        records: Sequence[Record],
        run: int,
        epoch_read: int,
    ) -> Ack:
        """Append records without it."""

    async def open_run(self, call: str, request: Acquire) -> int:
        """Return the run that provisional records of this origin belong to."""

    async def put_partials(
        self, call: str, writer: str, run: int, partials: Sequence[Partial]
    ) -> bool:
        """Overwrite the writer's partials."""

    async def finish_erasure(self, call: str) -> None:
        """Carry an erasure that was begun to its end, if there is one."""
