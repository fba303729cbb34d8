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
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..engine.engine import Engine
from ..engine.liveness import Liveness
from ..errors import Fenced, KeyRefused, StoreError
from ..seams import Clock
from ..stores.keys import call_key
from ..wire import StreamEvent, StreamQuery
from .route import NDJSON, Asked, Nothing
from .state import ServerState

__all__ = ["ALIVE_SECONDS", "stream"]

logger = logging.getLogger("recall_livekit.server")
_T = TypeVar("_T")

ALIVE_SECONDS = 1.0
"""A stream says that it is alive this often."""
RETRY_SECONDS = 0.5
"""The pause after the store failed; the stream stays: it says who is connected, no more."""
CLOSE_SECONDS = 60.0
"""How long the store is asked to keep that a stream broke; then the lease's TTL has to tell it."""
FOLLOWED = 16
"""How many entries are read at once for a follower."""


async def stream(asked: Asked[StreamQuery, Nothing]) -> ASGIApp:
    """Return the stream; a holder's is announced before it begins."""
    engine, call, query = asked.engine, asked.call, asked.query
    if query.writer is None or query.epoch is None:
        return _Stream(asked.server, _Waiter(engine, call), query.start)
    asked.key.require("agent")
    try:
        generation = await engine.open_stream(call, query.writer, query.epoch)
    except Fenced as fenced:
        return _Ended(_lost(fenced))
    holder = _Holder(asked.server, engine, call, query.writer, query.epoch, generation)
    return _Stream(asked.server, holder, query.start)


class _Waiter:
    """Someone who waits for the call to be free."""

    kind = "waiter"
    first: StreamEvent | None = None

    def __init__(self, engine: Engine, call: str) -> None:
        self.engine = engine
        self.call = call

    async def wait(self) -> StreamEvent:
        """Return what ends the stream."""
        liveness: Liveness = await self.engine.wait_free(self.call)
        return StreamEvent(event="free", liveness=liveness)

    def broke(self) -> None:
        """Nothing follows from it."""


class _Holder:
    """The holder of the call's lease: its stream is its sign of life."""

    kind = "holder"

    def __init__(
        self,
        server: ServerState,
        engine: Engine,
        call: str,
        writer: str,
        epoch: int,
        generation: int,
    ) -> None:
        self.engine = engine
        self.call = call
        self.first = StreamEvent(event="open", epoch=epoch)
        self._server = server
        self._writer = writer
        self._epoch = epoch
        self._generation = generation

    async def wait(self) -> StreamEvent:
        """Return what ends the stream."""
        return _lost(await self.engine.wait_lost(self.call, self._writer, self._epoch))

    def broke(self) -> None:
        """Let it be known, and carried through, that this stream broke."""
        logger.info("call %s: the stream of epoch %d broke", call_key(self.call), self._epoch)
        self._server.metrics.broken.inc()
        self._server.start(self._close, "a stream that broke")

    async def _close(self) -> None:
        with anyio.fail_after(CLOSE_SECONDS):
            await _insist(
                self._server.clock,
                partial(self.engine.close_stream, self.call, self._epoch, self._generation),
            )
        reading = await self.engine.read(self.call)
        if reading.epoch == self._epoch and reading.liveness is Liveness.DEAD:
            self._server.metrics.lapsed.inc()
            logger.warning("call %s: its holder is gone", call_key(self.call))


class _Stream:
    """The answer itself: lines, until something ends it."""

    status_code = 200

    def __init__(self, server: ServerState, end: _Waiter | _Holder, start: int | None) -> None:
        self._server = server
        self._end = end
        self._position = start
        self._ended: StreamEvent | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send lines until the lease is lost, or the call free, or the server leaves."""
        gone = False
        with self._server.metrics.streams.labels(self._end.kind).track_inprogress():
            async with anyio.create_task_group() as tasks:

                async def watch_client() -> None:
                    nonlocal gone
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    gone = True
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch_client)
                tasks.start_soon(self._check_key, tasks, Headers(scope=scope))
                tasks.start_soon(self._say, tasks, send)
        if gone and self._ended is None:
            self._end.broke()
        elif not gone:
            await self._close(send)

    async def _check_key(self, tasks: TaskGroup, headers: Headers) -> None:
        """A key that is revoked ends its streams. The holder may come back with another one."""
        while True:
            await self._server.clock.sleep(ALIVE_SECONDS)
            try:
                await self._server.key_of(headers)
            except KeyRefused:
                self._position = None  # nothing more is told
                tasks.cancel_scope.cancel()
            except StoreError as error:
                logger.warning("a stream's key was not checked: %s", error)

    async def _say(self, tasks: TaskGroup, send: Send) -> None:
        await send(_START)
        if self._end.first is not None:
            await _line(send, self._end.first)
        tasks.start_soon(self._alive, send)
        tasks.start_soon(self._until, tasks, self._drained)
        tasks.start_soon(self._until, tasks, self._wait_end)
        if self._position is not None:
            tasks.start_soon(self._follow, send)

    async def _until(self, tasks: TaskGroup, wait: Callable[[], Awaitable[StreamEvent]]) -> None:
        event = await wait()
        self._ended = self._ended or event
        tasks.cancel_scope.cancel()

    async def _drained(self) -> StreamEvent:
        await self._server.draining.wait()
        return StreamEvent(event="drain")

    async def _wait_end(self) -> StreamEvent:
        return await _insist(self._server.clock, self._end.wait)

    async def _alive(self, send: Send) -> None:
        while True:
            await self._server.clock.sleep(ALIVE_SECONDS)
            await _line(send, StreamEvent(event="alive"))

    async def _follow(self, send: Send) -> None:
        while True:
            await _insist(self._server.clock, partial(self._send_entries, send))
            assert self._position is not None
            wait = partial(self._end.engine.wait_entries, self._end.call, self._position)
            await _insist(self._server.clock, wait)

    async def _send_entries(self, send: Send) -> None:
        """Send the entries from the follower's position to the chain's end."""
        engine, call = self._end.engine, self._end.call
        while self._position is not None:
            page = await engine.entries(call, self._position, FOLLOWED)
            for entry in page:
                event = StreamEvent(event="entry", position=self._position, entry=entry)
                await _line(send, event)
                self._position += 1
            if len(page) < FOLLOWED:
                return

    async def _close(self, send: Send) -> None:
        """Say what ended it; a follower has seen all that came before."""
        try:
            await self._send_entries(send)
        except StoreError as error:
            logger.warning("a follower was not told all entries: %s", error)
        if self._ended is not None:
            await _line(send, self._ended)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Ended:
    """A stream that ended before it began."""

    status_code = 200

    def __init__(self, event: StreamEvent) -> None:
        self._event = event

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the one line."""
        await send(_START)
        await _line(send, self._event)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _insist(clock: Clock, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask until the store answers."""
    while True:
        try:
            return await ask()
        except StoreError as error:
            logger.warning("a stream waits for the store: %s", error)
            await clock.sleep(RETRY_SECONDS)


async def _line(send: Send, event: StreamEvent) -> None:
    line = event.model_dump_json(exclude_none=True).encode() + b"\n"
    await send({"type": "http.response.body", "body": line, "more_body": True})


def _lost(fenced: Fenced) -> StreamEvent:
    return StreamEvent(event="lost", epoch=fenced.epoch, holder=fenced.holder)


_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", NDJSON.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # a proxy that gathers lines would hide that it is alive
    ],
}
