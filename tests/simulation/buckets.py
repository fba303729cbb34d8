"""The object-shaped data: one `MemoryBucket`, and the door that each process has to it."""

from __future__ import annotations

import re

from recall_livekit.stores.memory import MemoryBucket

from .process import Process
from .watch import Watch

__all__ = ["Door", "SharedBucket"]

_NAME = re.compile(r"calls/[0-9a-f]+/(entries|cells)/(.+)")


class SharedBucket(MemoryBucket):
    """The data themselves; whoever writes, `watch` is told."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch

    def _put(self, name: str, data: bytes) -> str:
        known = name in self._objects
        etag = super()._put(name, data)
        if (found := _NAME.fullmatch(name)) is None:
            return etag
        kind, inner = found.groups()
        if kind == "cells":
            self.watch.cell(inner, data[8:])
        elif known:
            self.watch.replaced(int(inner), data)
        else:
            self.watch.entry(int(inner), data)
        return etag


class Door(MemoryBucket):
    """A process's way to a shared bucket: open while it runs, shut for ever when it is dead."""

    def __init__(self, bucket: SharedBucket, process: Process) -> None:
        super().__init__()
        self._bucket = bucket
        self._process = process
        self._objects = bucket._objects

    async def get(self, name: str) -> tuple[bytes, str] | None:
        await self._process.stand()
        self._bucket.watch.step()
        return await super().get(name)

    async def create(self, name: str, data: bytes) -> str:
        await self._process.stand()
        self._bucket.watch.step()
        return await super().create(name, data)

    async def update(self, name: str, data: bytes, etag: str) -> str:
        await self._process.stand()
        self._bucket.watch.step()
        return await super().update(name, data, etag)

    def _put(self, name: str, data: bytes) -> str:
        self._process.live()
        etag = self._bucket._put(name, data)
        self._process.wrote()
        return etag
