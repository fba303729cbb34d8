"""The SQLite-shaped data: each request is one atomic step, and locks tell who lives."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from recall_livekit.call_ids import check_call_id
from recall_livekit.errors import Closed, Conflict, InvalidInput
from recall_livekit.stores.base import Cell

from .process import Process
from .watch import Watch

__all__ = ["Locks", "Table", "TableStore"]

_LOCK = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass
class _Sheet:
    """One call's rows."""

    entries: list[bytes] = field(default_factory=list)
    cells: dict[str, tuple[bytes, int]] = field(default_factory=dict)


class Locks:
    """Which process has which lock, or whose child."""

    def __init__(self) -> None:
        self._holders: dict[str, Process] = {}
        self._changed = asyncio.Event()
        self._orphaned: list[Process] = []

    def hold(self, name: str, process: Process) -> None:
        if name not in self._holders:
            self._holders[name] = process
            process.on_death.append(lambda: self._died(name, process))

    def let_go(self, name: str, process: Process) -> None:
        if self._holders.get(name) is process:
            self.remove(name)

    def held(self, name: str) -> bool:
        return name in self._holders

    def remove(self, name: str) -> None:
        if self._holders.pop(name, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def orphan(self, process: Process) -> None:
        """A forked child of the process keeps its locks, for ever."""
        self._orphaned.append(process)

    def _died(self, name: str, process: Process) -> None:
        if process not in self._orphaned:
            self.let_go(name, process)

    async def wait_free(self, name: str) -> None:
        while self.held(name):
            await self._changed.wait()


class Table:
    """The data of all calls, as processes share them."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.locks = Locks()
        self.sheets: dict[str, _Sheet] = {}

    def sheet(self, call: str) -> _Sheet:
        return self.sheets.setdefault(call, _Sheet())

    def contains(self, content: bytes) -> bool:
        return any(
            any(content in entry for entry in sheet.entries)
            or any(content in value for value, _ in sheet.cells.values())
            for sheet in self.sheets.values()
        )


class TableStore:
    """One process's `Store` and `Locks` on a table."""

    def __init__(self, table: Table, process: Process) -> None:
        self._table = table
        self._process = process
        self._closed = False
        self._locks: list[str] = []

    async def _sheet(self, call: str) -> _Sheet:
        check_call_id(call)
        await self._stand()
        self._table.watch.step()
        return self._table.sheet(call)

    async def _stand(self) -> None:
        await asyncio.sleep(0)
        await self._process.stand()
        if self._closed:
            raise Closed("the store was closed")

    async def append(self, call: str, position: int, entry: bytes) -> None:
        sheet = await self._sheet(call)
        if position != len(sheet.entries):
            raise Conflict(f"position {position} is taken, or the one before it is not")
        sheet.entries.append(bytes(entry))
        self._table.watch.entry(position, entry)
        self._process.wrote()

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        return (await self._sheet(call)).entries[start : start + limit]

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        sheet = await self._sheet(call)
        if start + len(entries) > len(sheet.entries):
            raise Conflict(f"not every position from {start} on has an entry")
        sheet.entries[start : start + len(entries)] = entries
        for position, entry in enumerate(entries, start):
            self._table.watch.replaced(position, entry)
        self._process.wrote()

    async def get_cell(self, call: str, name: str) -> Cell | None:
        found = (await self._sheet(call)).cells.get(name)
        return Cell(found[0], str(found[1])) if found else None

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        sheet = await self._sheet(call)
        known = sheet.cells.get(name)
        if version != (str(known[1]) if known else None):
            raise Conflict(f"cell {name} does not have version {version}")
        new = known[1] + 1 if known else 1
        sheet.cells[name] = (bytes(value), new)
        self._table.watch.cell(name, value)
        self._process.wrote()
        return str(new)

    async def scrub(self, call: str) -> None:
        await self._sheet(call)

    async def calls(self) -> AsyncIterator[str]:
        await self._stand()
        for call in [call for call, sheet in self._table.sheets.items() if sheet.entries]:
            yield call

    async def aclose(self) -> None:
        self._closed = True
        for name in self._locks:
            self._table.locks.let_go(name, self._process)

    async def hold(self, name: str) -> None:
        if not _LOCK.fullmatch(name):
            raise InvalidInput(f"a lock's name is 1 to 64 of A-Z a-z 0-9 _ -, not {name!r}")
        await self._stand()
        self._table.locks.hold(name, self._process)
        self._locks.append(name)

    async def let_go(self, name: str) -> None:
        await self._stand()
        self._table.locks.let_go(name, self._process)

    async def held(self, name: str) -> bool:
        await self._stand()
        return self._table.locks.held(name)

    async def wait_free(self, name: str) -> None:
        await self._stand()
        await self._table.locks.wait_free(name)
        await self._process.clock.sleep(0.01)

    async def remove(self, name: str) -> None:
        await self._stand()
        self._table.locks.remove(name)

    async def wait_removed(self, name: str) -> None:
        await self.wait_free(name)
