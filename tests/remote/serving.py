"""A real server for tests: uvicorn on a free port of this machine, over a store of the test's."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import uvicorn
from anyio.abc import TaskGroup

from recall_livekit import Settings
from recall_livekit.engine.engine import Engine
from recall_livekit.server.app import create_app
from recall_livekit.server.keys import Keys
from recall_livekit.server.namespaces import Namespaces
from recall_livekit.server.state import ServerState
from recall_livekit.stores.base import Store
from recall_livekit.stores.memory import MemoryStore


class OneStore(Namespaces):
    """Every namespace is the one store that a test made, with whatever faults it has."""

    def __init__(self, store: Store, settings: Settings) -> None:
        super().__init__("memory:", settings)
        self.only = Engine(store, self.clock, settings)

    def engine(self, namespace: str) -> Engine:
        return self.only

    async def aclose(self) -> None:
        await self.only.aclose()


class QuietServer(uvicorn.Server):
    """Leaves the signals to the test runner."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(port: int = 0) -> socket.socket:
    """Return a socket that listens on loopback."""
    # With its protocol named: asyncio sends at once (TCP_NODELAY) only on such a one.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(128)
    return sock


class Servers:
    """Servers in this event loop, so that a test can reach into their stores."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._open: list[tuple[uvicorn.Server, ServerState]] = []

    def open(
        self,
        store: Store,
        settings: Settings | None = None,
        *,
        keys: Keys | None = None,
        port: int = 0,
    ) -> str:
        """Serve `store`, which is closed with the server; return the address."""
        namespaces = OneStore(store, settings or Settings())
        app = create_app(namespaces, keys or Keys(MemoryStore()), loopback=True)
        config = uvicorn.Config(
            app, log_config=None, ws="none", timeout_keep_alive=75, timeout_graceful_shutdown=1
        )
        server = QuietServer(config)
        sock = listening(port)
        self._open.append((server, app.state.server))
        self._tasks.start_soon(self._serve, server, sock, namespaces)
        return f"http://127.0.0.1:{sock.getsockname()[1]}"

    def leave(self) -> None:
        """Let every server end, as on SIGTERM."""
        for server, state in self._open:
            state.drain()
            server.should_exit = True

    @staticmethod
    async def _serve(server: uvicorn.Server, sock: socket.socket, namespaces: OneStore) -> None:
        try:
            await server.serve([sock])
        finally:
            sock.close()
            await namespaces.aclose()


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    """Own servers; they leave at the end."""
    async with anyio.create_task_group() as tasks:
        opened = Servers(tasks)
        yield opened
        opened.leave()
