"""`serve`: the app on uvicorn, from the first key check to the last request.

It speaks plain HTTP. Encryption is the business of the proxy in front of it (an ingress, nginx,
Caddy), which is also what keeps /metrics inside.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import uvicorn

from ..errors import InvalidSettings
from ..seams import Clock
from ..settings import Settings
from .app import create_app
from .keys import Keys, open_keys
from .namespaces import Namespaces
from .options import ServeOptions
from .protocol import BoundedProtocol
from .retention import keep_retention
from .sockets import listening_socket, raise_open_files, url_of
from .state import ServerState

__all__ = ["Listening", "run", "serve"]

logger = logging.getLogger("recall_livekit.server")

WATCH_INTERVAL = 0.15
"""How often a server looks at the sign of life of a holder that another server has, by default.
What happens at its own streams it sees at once; a hundred waiters cost a sixth of a core at this
rate, and half a core at a worker's own."""
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Listening:
    """A server that answers. `stop` may be called from any thread; it drains, as SIGTERM does."""

    url: str
    stop: Callable[[], None]


def run(
    options: ServeOptions,
    settings: Settings | None = None,
    *,
    listening: Callable[[Listening], object] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, on an event loop of uvloop. Returns after the drain.

    Raises:
        InvalidSettings, StoreError: As in `serve`.
    """
    served = partial(serve, options, settings, listening=listening)
    anyio.run(served, backend_options={"use_uvloop": True})


async def serve(
    options: ServeOptions,
    settings: Settings | None = None,
    clock: Clock | None = None,
    *,
    listening: Callable[[Listening], object] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT (both only in the main thread) or `Listening.stop`.

    `listening` is called once it answers. Being told to leave, it ends every stream with
    "drain", finishes the requests under way within `drain_wait`, and returns. Cancelled, it leaves
    in the same way.

    Raises:
        InvalidSettings: Nothing can listen there; or others reach it and no key was made yet.
        StoreError: The keys cannot be read.
    """
    settings = settings or Settings(watch_interval=WATCH_INTERVAL)
    raise_open_files()
    namespaces = Namespaces(options.store_url, settings, clock)
    keys = open_keys(options.store_url, namespaces.clock)
    try:
        await _check_keys(options, keys)
        with listening_socket(options.host, options.port, options.unix_path) as bound:
            hosts = (*_OWN_NAMES, options.host) if options.unix_path is None else None
            app = create_app(namespaces, keys, loopback=options.loopback, hosts=hosts)
            server: ServerState = app.state.server
            uv = _Uvicorn(_config(app, options), server, bound, listening)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(keep_retention, server, options.retain)
                await uv.serve_to_the_end()
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await keys.aclose()
            await namespaces.aclose()


async def _check_keys(options: ServeOptions, keys: Keys) -> None:
    await keys.look()
    if await keys.any_made():
        return
    if not options.loopback:
        raise InvalidSettings(
            f"others reach {options.host}, and this store has no key yet: make one with "
            f"`recall-livekit key create`, or listen at 127.0.0.1"
        )
    logger.warning(
        "no key was made yet: everybody on this machine may do everything in the namespace "
        "'default'; make a key with `recall-livekit key create`"
    )


def _config(app: object, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=options.drain_wait,  # type: ignore[arg-type]
    )


class _Uvicorn(uvicorn.Server):
    """Tells the streams to go elsewhere before it waits for them to end."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: ServerState,
        bound: socket.socket,
        listening: Callable[[Listening], object] | None,
    ) -> None:
        super().__init__(config)
        self._server = server
        self._bound = bound
        self._listening = listening

    async def serve_to_the_end(self) -> None:
        """Serve; cancelled, leave as on SIGTERM all the same, within the same bound."""
        try:
            await self.serve(sockets=[self._bound])
        except anyio.get_cancelled_exc_class():
            if self.started:
                with anyio.CancelScope(shield=True):
                    await self.shutdown(sockets=[self._bound])
            raise

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        url = url_of(self._bound)
        logger.info("listening at %s", url)
        if self._listening is not None:
            self._listening(Listening(url, self._stop))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("leaving: streams are told, requests under way are finished")
        self._server.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but without raising the signal again afterwards: the stores are still
        to be closed, and a server that was told to leave has done well."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self.handle_exit) for one in _SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _stop(self) -> None:
        self.should_exit = True
