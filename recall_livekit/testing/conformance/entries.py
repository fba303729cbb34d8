"""Entries: one order, no gap, each position decided once."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from ...errors import Conflict
from ...stores.base import Store
from .base import Conformance, at_once, calls_of, entries_of, unless_taken

__all__ = ["EntryConformance"]


class EntryConformance(Conformance):
    """What a store promises about entries, with two handles on one event loop."""

    async def test_a_call_that_was_never_written_is_empty(self) -> None:
        async with self.opened() as store:
            assert list(await store.read("call", 0, 10)) == []
            assert await store.get_cell("call", "partial") is None
            assert await calls_of(store) == []
            await store.replace("call", 0, [])
            await store.scrub("call")

    async def test_an_occupied_position_conflicts_and_keeps_its_entry(self) -> None:
        async with self.opened() as store, self.opened() as other:
            await store.append("call", 0, b"first")
            for handle in (store, other):
                with pytest.raises(Conflict):
                    await handle.append("call", 0, b"second")
            assert await entries_of(other, "call") == [b"first"]

    async def test_a_position_beyond_the_end_conflicts(self) -> None:
        async with self.opened() as store, self.opened() as other:
            with pytest.raises(Conflict):
                await store.append("call", 1, b"b")
            await store.append("call", 0, b"a")
            with pytest.raises(Conflict):
                await store.append("call", 2, b"c")
            await other.append("call", 1, b"b")
            await store.append("call", 2, b"c")
            assert await entries_of(store, "call") == [b"a", b"b", b"c"]

    async def test_a_read_has_no_gap_and_keeps_its_limit(self) -> None:
        async with self.opened() as store:
            written = [b"%d" % position for position in range(10)]
            for position, entry in enumerate(written):
                await store.append("call", position, entry)
            for start, limit in ((0, 3), (3, 3), (9, 5), (10, 5), (50, 5), (0, 0), (0, 1000)):
                assert list(await store.read("call", start, limit)) == written[start:][:limit]

    async def test_a_retry_after_a_lost_answer_adds_nothing(self) -> None:
        async with self.opened() as store:
            await store.append("call", 0, b"once")
            with pytest.raises(Conflict):
                await store.append("call", 0, b"once")
            assert await entries_of(store, "call") == [b"once"]

    async def test_a_cancelled_append_happened_once_or_not_at_all(self) -> None:
        async with self.opened() as store:
            for position in range(20):
                with anyio.move_on_after(0.0001 * position):
                    await store.append("call", position, b"%d" % position)
                if not await store.read("call", position, 1):
                    await unless_taken(store.append("call", position, b"%d" % position))
            assert await entries_of(store, "call") == [b"%d" % n for n in range(20)]

    async def test_each_position_that_two_race_for_has_one_winner(self) -> None:
        async with self.opened() as store, self.opened() as other:
            won: dict[str, list[int]] = {"a": [], "b": []}

            async def race(handle: Store, mark: str) -> None:
                for position in range(50):
                    if await unless_taken(handle.append("call", position, mark.encode())):
                        won[mark].append(position)

            await at_once(partial(race, store, "a"), partial(race, other, "b"))
            assert sorted(won["a"] + won["b"]) == list(range(50))
            expected = [b"a" if position in won["a"] else b"b" for position in range(50)]
            assert await entries_of(store, "call") == expected
            assert await entries_of(other, "call") == expected

    async def test_each_call_that_two_begin_at_once_has_one_beginning(self) -> None:
        async with self.opened() as store, self.opened() as other:
            won: list[bytes] = []

            async def begin(handle: Store, call: str, mark: bytes) -> None:
                if await unless_taken(handle.append(call, 0, mark)):
                    won.append(mark)

            for number in range(50):
                won.clear()
                call = f"call {number}"
                await at_once(partial(begin, store, call, b"a"), partial(begin, other, call, b"b"))
                assert len(won) == 1
                assert await entries_of(store, call) == won

    async def test_replace_overwrites_what_is_there_and_may_be_repeated(self) -> None:
        async with self.opened() as store, self.opened() as other:
            for position in range(5):
                await store.append("call", position, b"content" * 1000)
            for handle in (store, other, store):
                await handle.replace("call", 1, [b"", b"stub" * 5000])
            await store.append("call", 5, b"later")
            assert await entries_of(other, "call") == [
                *(b"content" * 1000, b"", b"stub" * 5000, b"content" * 1000, b"content" * 1000),
                b"later",
            ]

    async def test_replace_beyond_the_end_overwrites_nothing(self) -> None:
        async with self.opened() as store:
            await store.append("call", 0, b"a")
            with pytest.raises(Conflict):
                await store.replace("call", 0, [b"x", b"y"])
            with pytest.raises(Conflict):
                await store.replace("other", 0, [b"x"])
            assert await entries_of(store, "call") == [b"a"]

    @pytest.mark.parametrize("entry", [b"", bytes(range(256)), b"\0" * 3, bytes(1_000_000)])
    async def test_entries_and_cells_are_any_bytes(self, entry: bytes) -> None:
        async with self.opened() as store, self.opened() as other:
            await store.append("call", 0, entry)
            await store.put_cell("call", "cell", entry, None)
            assert await entries_of(other, "call") == [entry]
            cell = await other.get_cell("call", "cell")
            assert cell is not None
            assert cell.value == entry
