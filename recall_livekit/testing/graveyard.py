"""A store in memory that knows of all workers but those of this process that they are dead."""

from __future__ import annotations

import anyio

from ..stores.memory import MemoryBucket, MemoryStore

__all__ = ["Graveyard"]


class Graveyard(MemoryStore):
    """It has locks, as a directory on a machine has: whoever took none in this process is gone."""

    def __init__(self, bucket: MemoryBucket | None = None, held: set[str] | None = None) -> None:
        super().__init__(bucket)
        self._held = held if held is not None else set()

    def shared(self) -> Graveyard:
        """Return one more store on the same records, which can be closed by itself."""
        return Graveyard(self.bucket, self._held)

    async def hold(self, name: str) -> None:
        self._held.add(name)

    async def let_go(self, name: str) -> None:
        self._held.discard(name)

    async def held(self, name: str) -> bool:
        return name in self._held

    async def wait_free(self, name: str) -> None:
        while name in self._held:  # noqa: ASYNC110  nobody is told of it
            await anyio.sleep(0.01)

    async def remove(self, name: str) -> None:
        self._held.discard(name)

    async def wait_removed(self, name: str) -> None:
        await self.wait_free(name)
