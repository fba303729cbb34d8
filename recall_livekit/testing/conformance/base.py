"""What the parts of the suite share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from ...errors import Conflict
from ...stores.base import Store

__all__ = ["Conformance", "at_once", "calls_of", "entries_of", "unless_taken"]


class Conformance:
    """How a suite opens the store under test."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    def open_store(self) -> Store:
        """Open another handle on the same data, which are empty at the start of each test."""
        raise NotImplementedError

    def contains(self, content: bytes) -> bool:
        """Whether these bytes are anywhere in what the store keeps, its logs included."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        store = self.open_store()
        try:
            yield store
        finally:
            await store.aclose()


async def entries_of(store: Store, call: str) -> list[bytes]:
    """Return all entries of the call, read in pages."""
    found: list[bytes] = []
    while page := await store.read(call, len(found), 100):
        found.extend(page)
    return found


async def calls_of(store: Store) -> list[str]:
    """Return what the store lists, sorted."""
    return sorted([call async for call in store.calls()])


async def unless_taken(append: Awaitable[None]) -> bool:
    """Return whether the append was done rather than a Conflict."""
    try:
        await append
    except Conflict:
        return False
    return True


async def at_once(*parts: Callable[[], Awaitable[None]]) -> None:
    """Run all parts concurrently, until the last has ended."""

    async def run(part: Callable[[], Awaitable[None]]) -> None:
        await part()

    async with anyio.create_task_group() as tasks:
        for part in parts:
            tasks.start_soon(run, part)
