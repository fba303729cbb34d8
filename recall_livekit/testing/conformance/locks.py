"""What a store's locks promise, in one process and between processes."""

from __future__ import annotations

import time

import anyio
import pytest

from ...errors import Closed, InvalidInput
from ...stores.base import Locks, Store
from .base import Conformance
from .peers import Opener, hold, hold_until_removed, peer

__all__ = ["LockConformance"]

WITHIN = 0.1
"""Seconds in which a waiter learns what happened."""
BOUND = 10.0
"""Seconds after which a wait in a test has failed."""


def _locks(store: Store) -> Locks:
    assert isinstance(store, Locks)
    return store


class LockConformance(Conformance):
    """For a store that is a `Locks`. Subclass it; see the package."""

    def opener(self) -> Opener:
        """Return what opens the store in any process: it is pickled."""
        raise NotImplementedError

    def open_store(self) -> Store:
        return self.opener()()

    async def test_a_lock_is_held_until_it_is_let_go(self) -> None:
        async with self.opened() as store, self.opened() as other:
            assert not await _locks(store).held("a-1")
            await _locks(store).hold("a-1")
            await _locks(store).hold("a-2")
            for handle in (store, other):
                assert await _locks(handle).held("a-1")
            await _locks(other).let_go("a-1")
            assert await _locks(store).held("a-1")
            await _locks(store).let_go("a-1")
            for handle in (store, other):
                assert not await _locks(handle).held("a-1")
                assert await _locks(handle).held("a-2")

    async def test_who_waits_learns_that_it_was_let_go(self) -> None:
        async with self.opened() as store, self.opened() as other:
            for name, give in (("a", _locks(store).let_go), ("b", _locks(other).remove)):
                await _locks(store).hold(name)
                async with anyio.create_task_group() as tasks:
                    for handle in (store, other):
                        tasks.start_soon(_free_in_time, _locks(handle), name)
                    await anyio.sleep(0.03)
                    await give(name)

    async def test_a_wait_can_be_cancelled(self) -> None:
        async with self.opened() as store:
            locks = _locks(store)
            await locks.hold("a")
            for wait in (locks.wait_free, locks.wait_removed):
                with anyio.move_on_after(0.03) as scope:
                    await wait("a")
                assert scope.cancelled_caught
            assert await locks.held("a")

    async def test_closing_gives_locks_back_and_ends_waits(self) -> None:
        async with self.opened() as other:
            store = self.open_store()
            await _locks(store).hold("a")
            await _locks(other).hold("b")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_ends_closed, _locks(store), "b")
                await anyio.sleep(0.03)
                await store.aclose()
            assert not await _locks(other).held("a")
            with pytest.raises(Closed):
                await _locks(store).held("a")

    @pytest.mark.parametrize("name", ["", "../a", "a/b", "a.b", "x" * 65, "\u00e9"])
    async def test_what_is_no_name_is_refused(self, name: str) -> None:
        async with self.opened() as store:
            with pytest.raises(InvalidInput):
                await _locks(store).hold(name)

    async def test_a_waiter_learns_that_the_holder_was_killed(self) -> None:
        async with self.opened() as store, peer(hold, self.opener(), "theirs") as holder:
            await holder.tell("go")
            assert await holder.line() == "held"
            assert await _locks(store).held("theirs")
            async with anyio.create_task_group() as tasks:
                with anyio.move_on_after(0.05) as scope:
                    await _locks(store).wait_free("theirs")
                assert scope.cancelled_caught
                killed = time.monotonic()
                tasks.start_soon(holder.kill)
                with anyio.fail_after(BOUND):
                    await _locks(store).wait_free("theirs")
                took = time.monotonic() - killed
            print(f"free {took * 1000:.1f} ms after SIGKILL")  # noqa: T201 - seen with pytest -s
            assert took < WITHIN
            assert not await _locks(store).held("theirs")

    async def test_a_living_holder_learns_that_its_lock_was_removed(self) -> None:
        opener = self.opener()
        async with self.opened() as store, peer(hold_until_removed, opener, "theirs") as holder:
            await holder.tell("go")
            assert await holder.line() == "held"
            await _locks(store).remove("theirs")
            removed = time.monotonic()
            assert await holder.line() == "removed"
            took = time.monotonic() - removed
            print(f"told {took * 1000:.1f} ms after its removal")  # noqa: T201 - seen with -s
            assert not await _locks(store).held("theirs")


async def _free_in_time(locks: Locks, name: str) -> None:
    with anyio.fail_after(BOUND):
        await locks.wait_free(name)


async def _ends_closed(locks: Locks, name: str) -> None:
    with anyio.fail_after(BOUND), pytest.raises(Closed):
        await locks.wait_free(name)
