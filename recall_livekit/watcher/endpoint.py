"""The HTTP side of a watcher that stands alone: LiveKit's webhooks come in, its state is told.

::

    POST /livekit/webhook   what LiveKit sends (`webhook: urls` in its configuration)
    GET  /healthz           it runs
    GET  /readyz            it acts, or could: it reaches LiveKit and the records; else 503 and why
    GET  /metrics           Prometheus

It speaks plain HTTP. Only the first is for others than those who run it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from .webhooks import BODY_BYTES, Outcome, Received

__all__ = ["CONNECTIONS", "WEBHOOK_PATH", "Endpoint"]

logger = logging.getLogger("recall_livekit.watcher")

WEBHOOK_PATH = "/livekit/webhook"
CONNECTIONS = 256
"""So many are open at once; more are closed at once, so that they cost the watcher no files."""
BODY_SECONDS = 4.0
"""The longest that a body may take to arrive."""
IDLE_SECONDS = 75.0
"""How long a connection without a whole request is kept."""
LEAVE_SECONDS = 0.3
"""How long requests under way may take once it was told to leave."""
COMPLAINT_SECONDS = 60.0
"""What is wrong with webhooks is logged so often at most, of each kind."""

_STATUS: dict[Outcome, int] = {
    "accepted": 200,
    "ignored": 200,
    "doubled": 200,
    "expired": 401,
    "forged": 401,
    "malformed": 400,
    "too_large": 413,
}
"""None of them makes LiveKit send it again: it would not be better."""


class Endpoint:
    """Answers HTTP for a watcher."""

    def __init__(
        self,
        webhook: Callable[[bytes, str], Received],
        lacks: Callable[[], Sequence[str]],
        metrics: Callable[[], bytes],
    ) -> None:
        """Name what takes a webhook's body and Authorization header, what says what keeps the
        watcher from acting (nothing: it is ready), and what gives Prometheus' text."""
        self._webhook = webhook
        self._lacks = lacks
        self._metrics = metrics
        self._complained: dict[Outcome, float] = {}

    @asynccontextmanager
    async def listening(self, bound: socket.socket) -> AsyncIterator[None]:
        """Answer at this bound socket, within this block and at most `LEAVE_SECONDS` longer."""
        runner = web.AppRunner(
            self._app(),
            access_log=None,
            handle_signals=False,
            shutdown_timeout=LEAVE_SECONDS,
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=1.0,
            auto_decompress=False,
        )
        await runner.setup()
        try:
            listener = await _listen(runner, bound)
            try:
                yield
            finally:
                listener.close()
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_post(WEBHOOK_PATH, self._receive)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._measured)
        return app

    async def _receive(self, request: web.Request) -> web.Response:
        received = await self._read(request)
        if _STATUS[received.outcome] != 200:
            self._complain(received)
        return web.json_response(
            {"outcome": received.outcome, "why": received.why}, status=_STATUS[received.outcome]
        )

    async def _read(self, request: web.Request) -> Received:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return Received("too_large", why=f"a webhook has at most {BODY_BYTES} bytes")
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        return self._webhook(body, request.headers.get("Authorization", ""))

    def _complain(self, received: Received) -> None:
        """Log it, unless one of its kind was just logged: strangers do not write our log."""
        now = time.monotonic()
        last = self._complained.get(received.outcome)
        if last is None or now - last >= COMPLAINT_SECONDS:
            self._complained[received.outcome] = now
            logger.warning("a webhook was refused (%s): %s", received.outcome, received.why)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        lacks = list(self._lacks())
        if lacks:
            return web.json_response({"status": "not ready", "lacks": lacks}, status=503)
        return web.json_response({"status": "ok"})

    async def _measured(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )


async def _listen(runner: web.AppRunner, bound: socket.socket) -> asyncio.Server:
    server = runner.server
    assert server is not None

    def one_more() -> asyncio.Protocol:
        return _Full() if len(server.connections) >= CONNECTIONS else server()

    loop = asyncio.get_running_loop()
    if bound.family == socket.AF_UNIX:
        return await loop.create_unix_server(one_more, sock=bound)
    return await loop.create_server(one_more, sock=bound)


class _Full(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
