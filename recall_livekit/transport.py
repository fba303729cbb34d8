"""What a live call needs of the other side: the engine in this process, or a server's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Protocol

from .engine.entries import Entry
from .engine.listing import CallSummary
from .engine.liveness import Liveness
from .engine.news import CallEvent
from .engine.requests import Ack, Acquire, Grant, Reading
from .engine.runs import Origin
from .models import Outcome, Partial, Record, Turn

__all__ = ["Transport"]


class Transport(Protocol):
    """The requests of one worker. `Engine` answers them in this process and documents them."""

    # --- what is known of calls ---------------------------------------------------------------

    async def turns(self, call: str) -> Sequence[Turn]:
        """Return every turn of the current run."""

    async def entries(self, call: str, start: int, limit: int) -> Sequence[Entry]:
        """Return the chain's entries from `start` on."""

    async def get_output(self, call: str, ref: str) -> str:
        """Return the text that is kept under the ref."""

    def calls(self) -> AsyncIterator[str]:
        """Yield the id of every call; Recall's own are not among them."""

    def summaries(self) -> AsyncIterator[CallSummary]:
        """Yield how every call stands."""

    async def erase(self, call: str) -> None:
        """Erase the call's content for ever."""

    def events(self) -> AsyncGenerator[CallEvent, None] | None:
        """Return what happens to the calls of the namespace, as it happens, until it is closed or
        the transport is; None where nobody tells: then wait for each call. See `CallEvent`.

        It raises nothing: what cannot be heard is tried again, and `missed` then tells of it.
        Close it (`contextlib.aclosing`) where it is left early.
        """

    async def aclose(self) -> None:
        """Let go of everything."""

    # --- one live call ------------------------------------------------------------------------

    async def read(self, call: str, origin: Origin | None = None) -> Reading:
        """Return the call as a worker of this origin should see it, or, without one, as it is."""

    async def wait_free(self, call: str, *, doubt: Callable[[], None] | None = None) -> Liveness:
        """Return once the call has no live holder.

        `doubt` is called, perhaps again and again, when the evidence begins to be doubtful: the
        holder's stream broke, and it may yet come back. After certain evidence it is not.
        """

    async def acquire(self, call: str, request: Acquire) -> Grant:
        """Take the lease."""

    async def renew(self, call: str, writer: str, epoch: int) -> None:
        """Show that the holder lives."""

    async def release(self, call: str, writer: str, epoch: int, outcome: Outcome) -> None:
        """Give the lease back."""

    async def hold_lock(self, name: str) -> str | None:
        """Begin the sign of life that a lease goes by; None if there is no such thing."""

    async def let_go_lock(self, name: str | None) -> None:
        """End the sign of life."""

    async def stay(self, call: str, writer: str, epoch: int, lock: str | None) -> None:
        """Keep up the sign of life of a lease; return when the lease was taken. May never."""

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
        """Return the run that provisional records of this origin, or a spool's, belong to."""

    async def put_partials(
        self, call: str, writer: str, run: int, partials: Sequence[Partial]
    ) -> bool:
        """Overwrite the writer's partials."""

    async def put_output(self, call: str, writer: str, counter: int, text: str) -> str | None:
        """Keep a text beside the chain; return its ref, None before the writer's first entry."""

    async def finish_erasure(self, call: str) -> None:
        """Carry an erasure that was begun to its end, if there is one."""
