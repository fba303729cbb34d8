"""One machine's spool directory: what was synced survives its processes, what was not is torn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from recall_livekit.errors import Conflict, StoreUnavailable
from recall_livekit.spool.disk import ASIDE, Listed

from .process import Process

__all__ = ["DiskWatch", "Machine", "MachineDisk"]

T = TypeVar("T")


class DiskWatch(Protocol):
    """Told what the spools were told."""

    def durable(self, name: str, data: bytes) -> None:
        """These lines are on a disk, and a writer knows it."""

    def deleted(self, name: str, data: bytes) -> None:
        """A file of this content is no more."""

    def aside(self, name: str, data: bytes) -> None:
        """A file was set aside."""


class _File:
    """What lies on the disk."""

    def __init__(self, data: bytes, holder: Handle | None) -> None:
        self.data = data
        self.holder = holder


class Machine:
    """A disk that the machine's processes share."""

    def __init__(self, watch: DiskWatch, random: Random) -> None:
        self.watch = watch
        self.random = random
        self.files: dict[str, _File] = {}
        self.full = False

    def disk(self, process: Process) -> MachineDisk:
        """Return the disk as one process sees it."""
        return MachineDisk(self, process)


class MachineDisk:
    """One process's `Disk`."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self.machine = machine
        self.process = process
        process.on_death.append(self._let_go)

    def file(self, name: str) -> Handle:
        return Handle(self, name)

    async def listed(self) -> Sequence[Listed]:
        await self.stand()
        return [Listed(name, len(file.data), 0.0) for name, file in self.machine.files.items()]

    async def aclose(self) -> None:
        self._let_go()

    async def stand(self) -> None:
        await asyncio.sleep(self.machine.random.random() * 0.004)
        await self.process.stand()

    def _let_go(self) -> None:
        """The system gives back what a process held."""
        for file in self.machine.files.values():
            if file.holder is not None and file.holder.disk is self:
                file.holder = None


class Handle:
    """A `SpoolFile`."""

    def __init__(self, disk: MachineDisk, name: str) -> None:
        self.disk = disk
        self.name = name
        self._held: _File | None = None

    async def create(self, data: bytes) -> None:
        await self._stand_to_write()
        self._held = self.disk.machine.files[self.name] = _File(data, self)
        self.disk.machine.watch.durable(self.name, data)
        self.disk.process.wrote()

    async def take(self, read: Callable[[bytes], T]) -> T | None:
        await self.disk.stand()
        file = self.disk.machine.files.get(self.name)
        if file is None or file.holder is not None:
            return None
        file.holder = self
        self._held = file
        return read(file.data)

    async def append(self, at: int, data: bytes) -> None:
        await self._stand_to_write()
        if (file := self._mine()) is None:
            raise Conflict(f"{self.name} is not there any more")
        random, fuse = self.disk.machine.random, self.disk.process.fuse
        if fuse is not None and fuse <= 1 and random.random() < 0.5:
            data = data[: random.randrange(len(data))]  # torn: nobody is told
        else:
            self.disk.machine.watch.durable(self.name, data)
        file.data = file.data[:at] + data
        self.disk.process.wrote()

    async def remove(self) -> None:
        await self.disk.stand()
        if (file := self._mine()) is not None:
            del self.disk.machine.files[self.name]
            self._drop()
            self.disk.machine.watch.deleted(self.name, file.data)
            self.disk.process.wrote()

    async def set_aside(self) -> None:
        await self.disk.stand()
        if (file := self._mine()) is not None and not self.name.endswith(ASIDE):
            del self.disk.machine.files[self.name]
            self.disk.machine.files[self.name + ASIDE] = file
            self._drop()
            self.disk.machine.watch.aside(self.name, file.data)
            self.disk.process.wrote()

    async def let_go(self) -> None:
        await self.disk.stand()
        self._drop()

    def _drop(self) -> None:
        if self._held is not None and self._held.holder is self:
            self._held.holder = None
        self._held = None

    def _mine(self) -> _File | None:
        """Return the file if the name still means what this handle holds."""
        found = self.disk.machine.files.get(self.name)
        return found if found is not None and found is self._held else None

    async def _stand_to_write(self) -> None:
        await self.disk.stand()
        if self.disk.machine.full:
            raise StoreUnavailable("fault: the disk is full")
