"""The ground that the simulation stands on: the loop, and the table that plays SQLite."""

from __future__ import annotations

import asyncio
import time

import pytest

from recall_livekit.testing.conformance import StoreConformance

from .process import Died, Process
from .table import Table, TableStore
from .virtual import Deadlock, run_virtual


def test_an_hour_takes_no_time() -> None:
    async def hour() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert run_virtual(hour()) == pytest.approx(3600)
    assert time.monotonic() - began < 1


def test_timers_come_in_their_order() -> None:
    async def sleepers() -> list[float]:
        woken: list[float] = []

        async def sleep(seconds: float) -> None:
            await asyncio.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleep(seconds) for seconds in (3, 1, 2)))
        return woken

    assert run_virtual(sleepers()) == [1, 2, 3]


def test_waiting_for_nothing_is_told() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(forever())


def test_a_stopped_process_stands_and_a_dead_one_writes_nothing() -> None:
    async def life() -> None:
        process = Process("p", lambda: "id", _raise)
        process.stop()
        asyncio.get_running_loop().call_later(5, process.go_on)
        await process.clock.sleep(1)
        assert process.clock.monotonic() == pytest.approx(5)
        table = Table(_Unwatched())
        process.die()
        with pytest.raises(Died):
            await TableStore(table, process).append("call", 0, b"entry")
        assert not table.contains(b"entry")

    run_virtual(life())


def _raise(error: Exception) -> None:
    raise error


class _Unwatched:
    def step(self) -> None:
        pass

    def entry(self, position: int, data: bytes) -> None:
        pass

    def replaced(self, position: int, data: bytes) -> None:
        pass

    def cell(self, name: str, value: bytes) -> None:
        pass


class TestTable(StoreConformance):
    """It keeps the contract that `SqliteStore` keeps."""

    @pytest.fixture(autouse=True)
    async def place(self) -> None:
        self.table = Table(_Unwatched())

    def open_store(self) -> TableStore:
        return TableStore(self.table, Process("p", lambda: "id", _raise))

    def contains(self, content: bytes) -> bool:
        return self.table.contains(content)
