"""Other processes on the same store: what they do, and the handle by which a test leads them.

A peer imports nothing from the test but what it unpickles, says each thing it did on one line,
and does nothing before it is told to go.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ...errors import Conflict, StoreUnavailable
from ...stores.base import Locks, Store
from .base import entries_of

__all__ = ["Opener", "Peer", "append_on", "hold", "hold_until_removed", "peer", "race", "stall"]

Opener: TypeAlias = Callable[[], Store]
Role: TypeAlias = Callable[..., Awaitable[None]]

PATIENCE = 30.0
"""Seconds in which a peer says the next thing, on a slow machine."""
ENTRY = "from recall_livekit.testing.conformance.peers import main; main()"


async def race(opener: Opener, call: str, mark: str, count: int) -> None:
    """Try to append at each of `count` positions; say those that were won."""
    store = opener()
    for position in range(count):
        if await _won(store, call, position, f"{mark} {position}".encode()):
            _say(position)
    await store.aclose()


async def append_on(opener: Opener, call: str, mark: str) -> None:
    """Append from the end on, for ever; say each position once it is acknowledged."""
    store = opener()
    position = len(await entries_of(store, call))
    while True:
        await store.append(call, position, f"{mark} {position}".encode())
        _say(position)
        position += 1


async def stall(opener: Opener, begin: Callable[[], None]) -> None:
    """Begin a write transaction, and sit in it until killed."""
    begin()
    _say("stalled")
    time.sleep(PATIENCE)  # noqa: ASYNC251 - nothing else runs here


async def hold(opener: Opener, name: str) -> None:
    """Hold a lock until killed."""
    await _locks(opener).hold(name)
    _say("held")
    await anyio.sleep(PATIENCE)


async def hold_until_removed(opener: Opener, name: str) -> None:
    """Hold a lock, and say when somebody removed it."""
    locks = _locks(opener)
    await locks.hold(name)
    _say("held")
    await locks.wait_removed(name)
    _say("removed")


async def _won(store: Store, call: str, position: int, entry: bytes) -> bool:
    """Append, again while the outcome is unknown; whoever's entry is there has won."""
    while True:
        with suppress(StoreUnavailable):
            try:
                await store.append(call, position, entry)
            except Conflict:
                return list(await store.read(call, position, 1)) == [entry]
            return True


def _locks(opener: Opener) -> Locks:
    store = opener()
    assert isinstance(store, Locks)
    return store


def _say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main() -> None:
    """Be a peer: read the role, wait for the word, play it."""
    role, opener = pickle.loads(base64.b64decode(sys.stdin.readline()))
    _say("ready")
    if sys.stdin.readline():
        anyio.run(partial(role, opener))


class Peer:
    """A process that plays a role."""

    def __init__(self, process: Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._said = BufferedByteReceiveStream(process.stdout)

    async def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send(f"{line}\n".encode())

    async def line(self) -> str:
        """Return the next thing it says."""
        with anyio.fail_after(PATIENCE):
            return (await self._said.receive_until(b"\n", 1000)).decode()

    async def rest(self) -> list[str]:
        """Return all that it says until its end."""
        lines: list[str] = []
        with suppress(anyio.EndOfStream, anyio.IncompleteRead):
            while True:
                lines.append(await self.line())
        return lines

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        """End it as a crash does, and return once it is gone."""
        self._process.kill()
        with anyio.fail_after(PATIENCE):
            await self._process.wait()


@asynccontextmanager
async def peer(
    role: Callable[..., Awaitable[None]], opener: Opener, *args: Any
) -> AsyncIterator[Peer]:
    """Start a process that is ready to play `role` as soon as it is told anything."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    process = await anyio.open_process(
        [sys.executable, "-c", ENTRY], stderr=None, env={**os.environ, "PYTHONPATH": path}
    )
    async with process:
        it = Peer(process)
        try:
            role_and_opener = pickle.dumps((partial(_play, role, args), opener))
            await it.tell(base64.b64encode(role_and_opener).decode())
            assert await it.line() == "ready"
            yield it
        finally:
            if process.returncode is None:
                with anyio.CancelScope(shield=True):
                    await it.kill()


async def _play(
    role: Callable[..., Awaitable[None]], args: tuple[Any, ...], opener: Opener
) -> None:
    await role(opener, *args)
