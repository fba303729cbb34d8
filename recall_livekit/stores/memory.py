"""`MemoryStore`: an object store in memory, for tests and for trying things out."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

from anyio.lowlevel import checkpoint

from ..errors import Conflict
from .objects import ObjectStore

__all__ = ["MemoryBucket", "MemoryStore"]


class MemoryBucket:
    """A `Bucket` of one event loop. Each request yields to the loop before it acts."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, str]] = {}
        self._etags = itertools.count(1)

    async def get(self, name: str) -> tuple[bytes, str] | None:
        await checkpoint()
        return self._objects.get(name)

    async def create(self, name: str, data: bytes) -> str:
        await checkpoint()
        if name in self._objects:
            raise Conflict(f"{name} exists")
        return self._put(name, data)

    async def update(self, name: str, data: bytes, etag: str) -> str:
        await checkpoint()
        if name not in self._objects or self._objects[name][1] != etag:
            raise Conflict(f"{name} does not have etag {etag}")
        return self._put(name, data)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        await checkpoint()
        for name in [name for name in self._objects if name.startswith(prefix)]:
            yield name

    def contains(self, content: bytes) -> bool:
        """Whether any object has `content` in its name or data: erasure must leave none."""
        return any(
            content in name.encode() or content in data for name, (data, _) in self._objects.items()
        )

    def _put(self, name: str, data: bytes) -> str:
        etag = self.etag(data)
        self._objects[name] = (bytes(data), etag)
        return etag

    def etag(self, data: bytes) -> str:
        """Return a new etag at every write, whatever the data."""
        return f"{next(self._etags)}"


class MemoryStore(ObjectStore):
    """An `ObjectStore` in memory; two of them that share one bucket play two processes."""

    def __init__(self, bucket: MemoryBucket | None = None, *, timeout: float = 5.0) -> None:
        self.bucket = bucket if bucket is not None else MemoryBucket()
        super().__init__(self.bucket, timeout=timeout)
