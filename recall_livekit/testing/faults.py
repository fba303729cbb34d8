"""`FaultyStore`: any store, as it is on a bad day. The same seed gives the same faults."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint

from ..errors import Conflict, StoreError, StoreUnavailable
from ..stores.base import Cell, Locks, Store

__all__ = ["Faults", "FaultyLockStore", "FaultyStore"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """How probable each fault is at one request, from 0 to 1."""

    drop_request: float = 0.0
    """Nothing is done; StoreUnavailable."""
    late_request: float = 0.0
    """StoreUnavailable; a write is done all the same, just before some later request."""
    drop_answer: float = 0.0
    """It is done; StoreUnavailable."""
    duplicate: float = 0.0
    """A write is done, and then once more; what the second is told is lost."""
    delay: float = 0.0
    longest_delay: float = 0.05
    """Seconds."""


class FaultyStore:
    """Forwards to `store`, with faults drawn from `random`, and frozen while a test wants it.

    While it is frozen every request hangs, and raises StoreUnavailable after `timeout` seconds.
    It is a `Locks` if and only if `store` is one; locks know no faults but the freeze.
    """

    def __new__(cls, store: Store, *args: Any, **kwargs: Any) -> FaultyStore:
        return object.__new__(FaultyLockStore if isinstance(store, Locks) else cls)

    def __init__(
        self, store: Store, random: Random, faults: Faults | None = None, *, timeout: float = 5.0
    ) -> None:
        self.store = store
        self.faults = faults if faults is not None else Faults()
        """May be changed at any time: `store.faults = Faults()` ends the bad day."""
        self._random = random
        self._timeout = timeout
        self._frozen: anyio.Event | None = None
        self._late: list[Callable[[], Awaitable[object]]] = []

    def freeze(self) -> None:
        """Let every request from now on hang, until `thaw`."""
        if self._frozen is None:
            self._frozen = anyio.Event()

    def thaw(self) -> None:
        """Let what hangs, and all that follows, go on."""
        if self._frozen is not None:
            self._frozen.set()
            self._frozen = None

    async def append(self, call: str, position: int, entry: bytes) -> None:
        await self._write(partial(self.store.append, call, position, entry))

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        return await self._request(partial(self.store.read, call, start, limit))

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        await self._write(partial(self.store.replace, call, start, entries))

    async def get_cell(self, call: str, name: str) -> Cell | None:
        return await self._request(partial(self.store.get_cell, call, name))

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        return await self._write(partial(self.store.put_cell, call, name, value, version))

    async def scrub(self, call: str) -> None:
        await self._request(partial(self.store.scrub, call))

    async def calls(self) -> AsyncIterator[str]:
        await self._request(checkpoint)
        async for call in self.store.calls():
            yield call

    async def aclose(self) -> None:
        """Close `store`; what was late is lost."""
        self._late.clear()
        await self.store.aclose()

    async def _request(self, request: Callable[[], Awaitable[T]]) -> T:
        return await self._with_faults(request, writes=False)

    async def _write(self, request: Callable[[], Awaitable[T]]) -> T:
        return await self._with_faults(request, writes=True)

    async def _with_faults(self, request: Callable[[], Awaitable[T]], *, writes: bool) -> T:
        # All are drawn, whatever happens: a request takes as many numbers in every run.
        drop, late, lose, double, slow, length, chance, which = (
            self._random.random() for _ in range(8)
        )
        if slow < self.faults.delay:
            await anyio.sleep(length * self.faults.longest_delay)
        await self._thawed()
        if self._late and chance < 0.5:
            await _unanswered(self._late.pop(math.floor(which * len(self._late))))
        if drop < self.faults.drop_request:
            raise StoreUnavailable("fault: the request was lost")
        if late < self.faults.late_request:
            if writes:
                self._late.append(request)
            raise StoreUnavailable("fault: the request is late")
        answer = await request()
        if writes and double < self.faults.duplicate:
            await _unanswered(request)
        await self._thawed()
        if lose < self.faults.drop_answer:
            raise StoreUnavailable("fault: the answer was lost")
        return answer

    async def _thawed(self) -> None:
        """Wait while it is frozen; who was let go waits again if it was frozen again meanwhile."""
        if self._frozen is None:
            return
        try:
            with anyio.fail_after(self._timeout):
                while self._frozen is not None:
                    await self._frozen.wait()
        except TimeoutError as error:
            raise StoreUnavailable(f"fault: frozen for {self._timeout:g} s") from error


class FaultyLockStore(FaultyStore):
    """A `FaultyStore` whose inner store has locks. Made by `FaultyStore(...)`."""

    @property
    def _locks(self) -> Locks:
        return cast("Locks", self.store)

    async def hold(self, name: str) -> None:
        await self._thawed()
        await self._locks.hold(name)

    async def let_go(self, name: str) -> None:
        await self._thawed()
        await self._locks.let_go(name)

    async def held(self, name: str) -> bool:
        await self._thawed()
        return await self._locks.held(name)

    async def wait_free(self, name: str) -> None:
        await self._locks.wait_free(name)

    async def remove(self, name: str) -> None:
        await self._thawed()
        await self._locks.remove(name)

    async def wait_removed(self, name: str) -> None:
        await self._locks.wait_removed(name)


async def _unanswered(request: Callable[[], Awaitable[object]]) -> None:
    with suppress(Conflict, StoreError):  # Nobody hears its answer.
        await request()
