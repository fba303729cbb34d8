from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from recall_livekit import Settings
from recall_livekit.call import Call
from recall_livekit.engine.engine import Engine
from recall_livekit.seams import SystemClock
from recall_livekit.spool.spool import Drained, Spool
from recall_livekit.spool.status import FileStatus, status
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.faults import FaultyStore

CALL = "a call"
SHORT: dict[str, Any] = {
    "spool_after": 0.05,
    "drain_interval": 600.0,
    "retry_first": 0.02,
    "retry_last": 0.05,
    "flush_wait": 0.3,
}


class Process:
    """What one process of this machine has: an engine on the shared records, and its spool."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.settings = Settings(**(SHORT | settings))
        self.store = FaultyStore(SqliteStore(directory / "records"), Random(1), timeout=0.1)
        self.engine = Engine(self.store, SystemClock(), self.settings)
        self.directory = directory / "spool"
        self.calls: list[Call] = []
        self.spool = Spool.open(
            self.directory,
            address="here",
            transport=self.engine,
            clock=SystemClock(),
            settings=self.settings,
        )

    def drains_nothing(self) -> None:
        """Let its calls begin no drainer in the background."""
        self.spool.start = lambda: None  # type: ignore[method-assign]

    def call(self, call_id: str = CALL, **origin: Any) -> Call:
        call = Call(self.engine, SystemClock(), self.settings, call_id, spool=self.spool, **origin)
        self.calls.append(call)
        return call

    async def drain(self, *, aside: bool = False) -> list[Drained]:
        return [drained async for drained in self.spool.drain_all(aside=aside)]

    async def said(self, call_id: str = CALL) -> list[str]:
        return [turn.content for turn in await self.engine.turns(call_id)]

    @property
    def files(self) -> list[FileStatus]:
        return list(status(self.directory))

    async def aclose(self) -> None:
        self.store.thaw()
        for call in self.calls:
            await call.aclose()
        await self.spool.aclose()
        await self.engine.aclose()


OpenProcess = Callable[..., Process]


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[OpenProcess]:
    """Open one more process on the same records and the same spool. All are closed."""
    opened: list[Process] = []

    def open_one(**settings: Any) -> Process:
        opened.append(Process(tmp_path, **settings))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.aclose()
