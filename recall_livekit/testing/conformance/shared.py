"""What processes that share one store do to each other: races, crashes, and one that freezes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random

import anyio
import pytest

from ...errors import StoreUnavailable
from ...stores.base import Store
from .base import at_once, entries_of
from .peers import Opener, Peer, append_on, peer, race, stall
from .store import StoreConformance

__all__ = ["SharedStoreConformance"]

POSITIONS = 200
CRASHES = 6


class SharedStoreConformance(StoreConformance):
    """For a store that processes can share. Subclass it; see the package."""

    timeout: float
    """The timeout of the stores that `opener` opens: a second is enough."""

    def opener(self) -> Opener:
        """Return what opens the store in any process: it is pickled."""
        raise NotImplementedError

    def stalling(self, call: str) -> Callable[[], None]:
        """Return what begins a write transaction on `call` and leaves it open; it is pickled."""
        raise NotImplementedError

    def open_store(self) -> Store:
        return self.opener()()

    async def test_each_position_that_two_processes_race_for_has_one_winner(self) -> None:
        opener = self.opener()
        won: dict[str, list[int]] = {"a": [], "b": []}

        async def run(it: Peer, mark: str) -> None:
            await it.tell("go")
            won[mark] = [int(line) for line in await it.rest()]

        async with (
            peer(race, opener, "call", "a", POSITIONS) as a,
            peer(race, opener, "call", "b", POSITIONS) as b,
        ):
            await at_once(partial(run, a, "a"), partial(run, b, "b"))
        assert sorted(won["a"] + won["b"]) == list(range(POSITIONS))
        marks = ["a" if position in won["a"] else "b" for position in range(POSITIONS)]
        async with self.opened() as store:
            expected = [f"{mark} {position}".encode() for position, mark in enumerate(marks)]
            assert await entries_of(store, "call") == expected

    async def test_what_a_killed_process_was_told_is_written_stays(self) -> None:
        random = Random(3)
        opener = self.opener()
        acknowledged: dict[int, bytes] = {}
        async with self.opened() as store:
            for crash in range(CRASHES):
                async with peer(append_on, opener, "call", f"crash {crash}") as it:
                    await it.tell("go")
                    lines = [await it.line() for _ in range(random.randint(1, 80))]
                    await anyio.sleep(random.random() / 200)
                    await it.kill()
                    lines += await it.rest()
                for line in lines:
                    acknowledged[int(line)] = f"crash {crash} {line}".encode()
                entries = await entries_of(store, "call")
                assert len(entries) - 1 in (max(acknowledged), max(acknowledged) + 1)
                for position, entry in acknowledged.items():
                    assert entries[position] == entry

    async def test_a_process_that_freezes_in_a_commit_holds_up_its_own_call_alone(self) -> None:
        opener = self.opener()
        async with self.opened() as store:
            for call in ("frozen", "other"):
                await store.append(call, 0, b"before")
            async with peer(stall, opener, self.stalling("frozen")) as it:
                await it.tell("go")
                assert await it.line() == "stalled"
                it.freeze()
                await at_once(
                    partial(self._appends_in_vain, store, "frozen"),
                    partial(self._goes_on_beside, store, "frozen", "other"),
                )
                assert await entries_of(store, "frozen") == [b"before"]
                await it.kill()
            await store.append("frozen", 1, b"after")
            assert await entries_of(store, "frozen") == [b"before", b"after"]

    async def _appends_in_vain(self, store: Store, call: str) -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.append(call, 1, b"in vain")
        assert self.timeout * 0.9 < time.monotonic() - began < self.timeout * 2 + 1

    async def _goes_on_beside(self, store: Store, frozen: str, other: str) -> None:
        """Hundred appends, each with reads of both calls, before the one in vain gives up."""
        with anyio.fail_after(self.timeout * 0.9):
            for position in range(1, 101):
                await store.append(other, position, b"on")
                assert list(await store.read(other, position, 2)) == [b"on"]
                assert list(await store.read(frozen, 0, 2)) == [b"before"]
