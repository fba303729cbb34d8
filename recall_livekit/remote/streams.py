"""One stream a call: a holder's sign of life, or a standby's ear for its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import ValidationError

from ..call_ids import encode_call_id
from ..engine.liveness import Liveness
from ..errors import Erased, Fenced, RecallError, StoreError, StoreUnavailable
from ..seams import Clock
from ..settings import Settings
from ..wire import StreamEvent
from .http import Http

__all__ = ["Streams"]

logger = logging.getLogger("recall_livekit")

SETTLED = 1.0
"""A stream that lived for so long (seconds) was a good one: the next is opened at once."""


@dataclass(frozen=True, slots=True)
class _Lease:
    call: str
    writer: str
    epoch: int


@dataclass(slots=True)
class _Stream:
    began: float
    opened: bool = False
    drained: bool = False
    """The server said that it leaves: it takes nobody for dead, and there is no hurry."""


class Streams:
    """The open streams of one worker. A holder's lives until `end`, whoever waits for it: a
    worker that is closing still writes what it has, and must not be taken for dead meanwhile."""

    def __init__(self, http: Http, clock: Clock, settings: Settings) -> None:
        """Open nothing yet."""
        self._http = http
        self._clock = clock
        self._settings = settings
        self._kept: dict[str, asyncio.Task[None]] = {}

    async def stay(self, name: str, call: str, writer: str, epoch: int) -> None:
        """Keep the holder's stream open under this name; return once its lease was lost, or
        `end` was called. Cancelled, the stream stays open: for as long as a close may take."""
        kept = self._kept.get(name)
        if kept is None:
            kept = asyncio.create_task(
                self._keep(_Lease(call, writer, epoch)), name="recall stream"
            )
            self._kept[name] = kept
            kept.add_done_callback(lambda kept: self._ended(name, kept))
        try:
            await asyncio.wait([kept])
        except asyncio.CancelledError:
            most = 3 * self._settings.flush_wait
            asyncio.get_running_loop().call_later(most, kept.cancel)
            raise

    async def end(self, name: str) -> None:
        """Close the stream of this name, if there is one."""
        kept = self._kept.get(name)
        if kept is not None:
            kept.cancel()
            await asyncio.wait([kept])

    async def wait_free(self, call: str, *, doubt: Callable[[], None] | None = None) -> Liveness:
        """Return once the call has no live holder; call `doubt` when its stream breaks.

        Raises:
            StoreError: The stream could not be opened, or was closed again at once.
        """
        while True:
            began = self._clock.monotonic()
            try:
                async with aclosing(self._events(call, {}, ())) as events:
                    async for event in events:
                        if event.event == "free":
                            return event.liveness or Liveness.FREE
                        if event.event == "broken" and doubt is not None:
                            doubt()
                        if event.event == "drain":
                            break
                broke = StoreUnavailable("the server closed the stream")
            except StoreUnavailable as error:
                broke = error
            if self._clock.monotonic() - began < SETTLED:
                raise broke

    async def aclose(self) -> None:
        """Close every stream."""
        for name in list(self._kept):
            await self.end(name)

    # --- inside -------------------------------------------------------------------------------

    async def _keep(self, lease: _Lease) -> None:
        """Return once the lease was lost. When a stream breaks the next is opened at once, and
        after that with growing pauses, of which the first few are within the grace."""
        grace = self._settings.disconnect_grace
        pause = 0.0
        while True:
            stream = _Stream(self._clock.monotonic())
            try:
                if await self._lost(lease, stream):
                    return
            except StoreError as error:
                logger.debug("stream of writer %s: %s", lease.writer, error)
            if self._clock.monotonic() - stream.began >= SETTLED:
                pause = 0.0
            elif stream.opened and not stream.drained:
                pause = min(pause, grace / 4)  # broken at once: again within the grace
            await self._clock.sleep(self._clock.jitter(pause))
            pause = min(max(grace / 8, 2 * pause), self._settings.return_grace / 2)

    async def _lost(self, lease: _Lease, stream: _Stream) -> bool:
        """Follow one stream; return whether it told that the lease is not in force any more."""
        params: dict[str, str | int] = {"writer": lease.writer, "epoch": lease.epoch}
        try:
            async with aclosing(self._events(lease.call, params, (Fenced, Erased))) as events:
                async for event in events:
                    stream.opened, stream.drained = True, event.event == "drain"
                    if event.event in ("lost", "drain"):
                        return event.event == "lost"
        except (Fenced, Erased):
            return True
        return False

    async def _events(
        self, call: str, params: dict[str, str | int], raises: tuple[type[RecallError], ...]
    ) -> AsyncGenerator[StreamEvent, None]:
        path = f"/v1/calls/{encode_call_id(call)}/stream"
        silence = self._settings.stream_silence
        lines = self._http.lines(path, params=params, silence=silence, raises=raises)
        async with aclosing(lines):
            async for line in lines:
                yield _event(line)

    def _ended(self, name: str, kept: asyncio.Task[None]) -> None:
        if self._kept.get(name) is kept:
            del self._kept[name]
        if not kept.cancelled() and (error := kept.exception()) is not None:
            logger.error("a stream ended early", exc_info=error)


def _event(line: bytes) -> StreamEvent:
    try:
        return StreamEvent.model_validate_json(line)
    except ValidationError as error:
        raise StoreUnavailable("the stream is not one of a Recall server") from error
