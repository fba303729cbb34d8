"""A wire between a worker and its server that can be bad: a TCP proxy in the test's event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio

__all__ = ["Wire", "wire"]


class Wire:
    """Forwards bytes both ways, until a test makes it worse.

    `drop`: every byte is lost, nobody is told, and new connections get no answer (a partition).
    `freeze`: bytes wait until `heal`. `delay`: seconds that each chunk takes. `cut` resets every
    connection that is open now.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        assert parts.port is not None
        self._to = (parts.hostname, parts.port)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._lossy: set[asyncio.StreamWriter] = set()
        self._moving = anyio.Event()
        self._moving.set()
        self._dropping = False
        self.delay = 0.0
        self.address = ""
        self.accepted = 0

    @property
    def open(self) -> int:
        """How many connections there are."""
        return len(self._pairs)

    def drop(self) -> None:
        self._dropping = True

    def freeze(self) -> None:
        self._moving = anyio.Event()

    def heal(self) -> None:
        """As good as new. A connection that lost bytes cannot go on, and is reset."""
        self._dropping = False
        self._moving.set()
        for writer in self._lossy:
            _reset(writer)
        self._lossy.clear()

    def cut(self) -> None:
        for pair in self._pairs:
            for writer in pair:
                _reset(writer)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a worker's."""
        self.accepted += 1
        with suppress(OSError):
            away_reader, away = await asyncio.open_connection(*self._to)
            pair = (writer, away)
            self._pairs.add(pair)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, reader, away, tasks)
                    tasks.start_soon(self._pump, away_reader, writer, tasks)
            finally:
                self._pairs.discard(pair)
                away.close()
        writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._dropping:
                    self._lossy.add(writer)
                if writer in self._lossy:
                    continue
                if self.delay:
                    await anyio.sleep(self.delay)
                await self._moving.wait()
                writer.write(data)
                await writer.drain()
        if self._dropping:  # nobody hears of the end either
            self._lossy.add(writer)
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def wire(address: str) -> AsyncIterator[Wire]:
    """A wire to the server at `address`; its own address is the one to use."""
    between = Wire(address)
    server = await asyncio.start_server(between.accept, "127.0.0.1", 0, backlog=512)
    host, port = server.sockets[0].getsockname()[:2]
    between.address = f"http://{host}:{port}"
    try:
        yield between
    finally:
        server.close()
        between.cut()
        with anyio.move_on_after(2):
            while between.open:  # noqa: ASYNC110
                await anyio.sleep(0.01)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it with a reset, so that the other side sees it at once."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
