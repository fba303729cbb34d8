"""Real records for many processes in one loop: each has its own engine on one shared bucket, and
its own line to it, which can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from recall_livekit import Recall, Settings
from recall_livekit.errors import StoreUnavailable
from recall_livekit.stores.memory import MemoryBucket
from recall_livekit.stores.objects import ObjectStore

START = 1_800_000_000.0


class LoopClock:
    """The loop's own time, virtual or not; wall clock and all."""

    ids = 0

    def now(self) -> float:
        return START + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jitter(self, seconds: float) -> float:
        return seconds

    def new_id(self) -> str:
        LoopClock.ids += 1
        return f"{LoopClock.ids:016x}"


class Machine:
    """Where all processes run: the bucket, and the locks that they hold."""

    def __init__(self) -> None:
        self.bucket = MemoryBucket()
        self.locks: dict[str, asyncio.Event] = {}

    def process(self, **settings: Any) -> Process:
        return Process(self, settings)


class Process:
    """Something that has its own handle on the records."""

    def __init__(self, machine: Machine, settings: dict[str, Any]) -> None:
        self.line = Line(machine.bucket)
        self.store = LockStore(self.line, machine)
        self.recall = Recall(self.store, clock=LoopClock(), settings=Settings(**settings))

    def die(self) -> None:
        """As by SIGKILL: nothing of it is written any more, and its locks are free."""
        self.line.cut = True
        self.store.die()


class Line:
    """The way to the bucket."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.cut = False

    async def get(self, name: str) -> tuple[bytes, str] | None:
        await self._pass()
        return await self._bucket.get(name)

    async def create(self, name: str, data: bytes) -> str:
        await self._pass()
        return await self._bucket.create(name, data)

    async def update(self, name: str, data: bytes, etag: str) -> str:
        await self._pass()
        return await self._bucket.update(name, data, etag)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        await self._pass()
        async for name in self._bucket.list(prefix):
            yield name

    async def _pass(self) -> None:
        await asyncio.sleep(0.001)
        if self.cut:
            raise StoreUnavailable("the line is cut")


class LockStore(ObjectStore):
    """Satisfies `Locks` too."""

    def __init__(self, line: Line, machine: Machine) -> None:
        super().__init__(line)
        self._machine = machine
        self._mine: set[str] = set()

    def die(self) -> None:
        for name in self._mine:
            self._machine.locks.pop(name, asyncio.Event()).set()

    async def hold(self, name: str) -> None:
        self._mine.add(name)
        self._machine.locks.setdefault(name, asyncio.Event())

    async def let_go(self, name: str) -> None:
        self._mine.discard(name)
        self._machine.locks.pop(name, asyncio.Event()).set()

    async def held(self, name: str) -> bool:
        return name in self._machine.locks

    async def wait_free(self, name: str) -> None:
        if name in self._machine.locks:
            await self._machine.locks[name].wait()
            await asyncio.sleep(0.01)

    async def remove(self, name: str) -> None:
        await self.let_go(name)

    async def wait_removed(self, name: str) -> None:
        await self.wait_free(name)
