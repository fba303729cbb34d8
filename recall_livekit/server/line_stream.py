"""An answer of lines, JSON each, that goes on until something ends it.

While it is open it says every second that it is alive, and looks whether its key is still good.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from ..errors import KeyRefused, StoreError
from ..models import Value
from .route import NDJSON
from .state import ServerState

__all__ = ["ALIVE_SECONDS", "LineStream", "Say"]

logger = logging.getLogger("recall_livekit.server")

ALIVE_SECONDS = 1.0
"""A stream says that it is alive this often."""

Say = Callable[[Value], Awaitable[None]]
"""Sends a value as the next line."""


class LineStream:
    """One such answer; what it tells is its subclass's. `kind` is what the metrics call it."""

    status_code = 200
    kind: str
    line: Callable[..., Value]
    """Makes the line of an `event` that has nothing else to say."""

    def __init__(self, server: ServerState) -> None:
        """Send nothing yet."""
        self.server = server
        self._ended: Value | None = None

    async def tell(self, tasks: TaskGroup, say: Say) -> None:
        """Say the first lines, and start what says the others."""
        raise NotImplementedError

    async def tell_rest(self, say: Say) -> None:
        """Say what is left, before the line that ends it."""

    def refused(self) -> None:
        """The key is not good any more: `tell_rest` says nothing."""

    def broke(self) -> None:
        """The client is gone, and nothing else had ended it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send lines until something ends it, or the client is gone, or the server leaves."""
        gone = False

        async def say(value: Value) -> None:
            await _send(send, value.model_dump_json(exclude_none=True).encode() + b"\n")

        with self.server.metrics.streams.labels(self.kind).track_inprogress():
            async with anyio.create_task_group() as tasks:

                async def watch_client() -> None:
                    nonlocal gone
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    gone = True
                    tasks.cancel_scope.cancel()

                tasks.start_soon(watch_client)
                tasks.start_soon(self._check_key, tasks, Headers(scope=scope))
                tasks.start_soon(self._begin, tasks, send, say)
        if gone and self._ended is None:
            self.broke()
        elif not gone:
            await self._end(send, say)

    async def until(self, tasks: TaskGroup, wait: Callable[[], Awaitable[Value]]) -> None:
        """End the stream with the line that `wait` returns."""
        event = await wait()
        self._ended = self._ended or event
        tasks.cancel_scope.cancel()

    async def _begin(self, tasks: TaskGroup, send: Send, say: Say) -> None:
        await send(_START)
        await self.tell(tasks, say)
        tasks.start_soon(self._alive, say)
        tasks.start_soon(self.until, tasks, self._drained)

    async def _check_key(self, tasks: TaskGroup, headers: Headers) -> None:
        """A key that is revoked ends its streams. The client may come back with another one."""
        while True:
            await self.server.clock.sleep(ALIVE_SECONDS)
            try:
                await self.server.key_of(headers)
            except KeyRefused:
                self.refused()
                tasks.cancel_scope.cancel()
            except StoreError as error:
                logger.warning("a stream's key was not checked: %s", error)

    async def _alive(self, say: Say) -> None:
        while True:
            await self.server.clock.sleep(ALIVE_SECONDS)
            await say(self.line(event="alive"))

    async def _drained(self) -> Value:
        await self.server.draining.wait()
        return self.line(event="drain")

    async def _end(self, send: Send, say: Say) -> None:
        await self.tell_rest(say)
        if self._ended is not None:
            await say(self._ended)
        await _send(send, b"", more=False)


async def _send(send: Send, body: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", NDJSON.encode()),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),  # a proxy that gathers lines would hide that it is alive
    ],
}
