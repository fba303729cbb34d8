"""GET /v1/calls/{call_id}/stream: the holder's sign of life, a waiter's news, records as they come.

A holder's stream that breaks is what tells that its process died; so it must be seen to break at
once, and what follows from it is done whatever becomes of the request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup
from starlette.types import ASGIApp

from ..engine.liveness import Liveness
from ..errors import Fenced, StoreError
from ..seams import Clock
from ..stores.keys import call_key
from ..wire import StreamEvent, StreamQuery
from .answers import answer
from .line_stream import LineStream, Say
from .route import NDJSON, Asked, Nothing

__all__ = ["stream"]

logger = logging.getLogger("recall_livekit.server")
_T = TypeVar("_T")

RETRY_SECONDS = 0.5
"""The pause after the store failed; the stream stays: it says who is connected, no more."""
CLOSE_SECONDS = 60.0
"""How long the store is asked to keep that a stream broke; then the lease's TTL has to tell it."""
FOLLOWED = 16
"""How many entries are read at once for a follower."""


async def stream(asked: Asked[StreamQuery, Nothing]) -> ASGIApp:
    """Return the stream; a holder's is announced before it begins."""
    query = asked.query
    if query.writer is None or query.epoch is None:
        return _Waiter(asked)
    asked.key.require("agent")
    try:
        generation = await asked.engine.open_stream(asked.call, query.writer, query.epoch)
    except Fenced as fenced:
        line = _lost(fenced).model_dump_json(exclude_none=True).encode() + b"\n"
        return answer(line, NDJSON, {"Cache-Control": "no-store"})
    return _Holder(asked, query.writer, query.epoch, generation)


class _Stream(LineStream):
    """One stream of a call, and the entries in it if they are followed."""

    line = StreamEvent

    def __init__(self, asked: Asked[StreamQuery, Nothing]) -> None:
        super().__init__(asked.server)
        self.engine = asked.engine
        self.call = asked.call
        self._position = asked.query.start

    async def wait(self, say: Say) -> StreamEvent:
        """Return what ends the stream."""
        raise NotImplementedError

    async def tell(self, tasks: TaskGroup, say: Say) -> None:
        """See `LineStream`."""
        tasks.start_soon(self.until, tasks, partial(self._wait_end, say))
        if self._position is not None:
            tasks.start_soon(self._follow, say)

    async def tell_rest(self, say: Say) -> None:
        """A follower has seen all that came before the end."""
        try:
            await self._say_entries(say)
        except StoreError as error:
            logger.warning("a follower was not told all entries: %s", error)

    def refused(self) -> None:
        """Nothing more is told."""
        self._position = None

    async def _wait_end(self, say: Say) -> StreamEvent:
        return await _insist(self.server.clock, partial(self.wait, say))

    async def _follow(self, say: Say) -> None:
        while True:
            await _insist(self.server.clock, partial(self._say_entries, say))
            assert self._position is not None
            wait = partial(self.engine.wait_entries, self.call, self._position)
            await _insist(self.server.clock, wait)

    async def _say_entries(self, say: Say) -> None:
        """Say the entries from the follower's position to the chain's end."""
        while self._position is not None:
            page = await self.engine.entries(self.call, self._position, FOLLOWED)
            for entry in page:
                await say(StreamEvent(event="entry", position=self._position, entry=entry))
                self._position += 1
            if len(page) < FOLLOWED:
                return


class _Waiter(_Stream):
    """The stream of someone who waits for the call to be free."""

    kind = "waiter"

    async def wait(self, say: Say) -> StreamEvent:
        """Return what ends the stream; say when the holder's breaks, and that it came back."""

        async def changed(epoch: int, doubtful: bool) -> None:
            await say(StreamEvent(event="broken" if doubtful else "open", epoch=epoch))

        liveness = await self.engine.watch_holder(self.call, changed)
        return StreamEvent(event="free", liveness=liveness)


class _Holder(_Stream):
    """The stream of the holder of the call's lease: its sign of life."""

    kind = "holder"

    def __init__(
        self, asked: Asked[StreamQuery, Nothing], writer: str, epoch: int, generation: int
    ) -> None:
        super().__init__(asked)
        self._news = asked.news
        self._writer = writer
        self._epoch = epoch
        self._generation = generation

    async def tell(self, tasks: TaskGroup, say: Say) -> None:
        """See `LineStream`."""
        await say(StreamEvent(event="open", epoch=self._epoch))
        await super().tell(tasks, say)

    async def wait(self, say: Say) -> StreamEvent:
        """Return what ends the stream."""
        return _lost(await self.engine.wait_lost(self.call, self._writer, self._epoch))

    def broke(self) -> None:
        """Let it be known, and carried through, that this stream broke."""
        logger.info("call %s: the stream of epoch %d broke", call_key(self.call), self._epoch)
        self.server.metrics.broken.inc()
        self._news.tell("broken", self.call, self._epoch)
        self.server.start(self._keep_broken, "a stream that broke")

    async def _keep_broken(self) -> None:
        with anyio.fail_after(CLOSE_SECONDS):
            await _insist(
                self.server.clock,
                partial(self.engine.close_stream, self.call, self._epoch, self._generation),
            )
        reading = await self.engine.read(self.call)
        if reading.epoch == self._epoch and reading.liveness is Liveness.BROKEN:
            self.server.metrics.lapsed.inc()
            self._news.tell("lapsed", self.call, self._epoch)
            logger.warning("call %s: its holder is gone", call_key(self.call))


async def _insist(clock: Clock, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask until the store answers."""
    while True:
        try:
            return await ask()
        except StoreError as error:
            logger.warning("a stream waits for the store: %s", error)
            await clock.sleep(RETRY_SECONDS)


def _lost(fenced: Fenced) -> StreamEvent:
    return StreamEvent(event="lost", epoch=fenced.epoch, holder=fenced.holder)
