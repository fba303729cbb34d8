"""Outputs beside the chain, and their erasure, run through the real engine on the store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from ...engine.runs import Origin
from ...errors import Erased, InvalidRecord, OutputMissing
from .base import at_once
from .workers import CALL, SECRET, TwoWorkers, request, turns

__all__ = ["OutputRules"]

LONGEST = 1024 * 1024


class OutputRules(TwoWorkers):
    """Rules 14 and 15: created once, named so that an eraser can list them, and sealed by it."""

    async def kept(self, counter: int, text: str, writer: str = "w1") -> str:
        ref = await self.one.put_output(CALL, writer, counter, text)
        assert ref is not None
        return ref

    async def is_missing(self, ref: str) -> bool:
        with pytest.raises(OutputMissing):
            await self.two.get_output(CALL, ref)
        return True

    # --- keeping --------------------------------------------------------------------------------

    async def test_an_output_is_read_by_its_ref_whoever_kept_it(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        texts = ["a report", "", "\u00e4\u4e2d\U0001f600\0", "x" * LONGEST]
        refs = [await self.kept(counter, text) for counter, text in enumerate(texts)]
        assert len(set(refs)) == len(texts)
        assert [await self.two.get_output(CALL, ref) for ref in refs] == texts

    async def test_an_output_sent_again_is_kept_once(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        first = await self.kept(0, "a")
        assert await self.two.put_output(CALL, "w1", 0, "a") == first
        assert await self.kept(1, "b") != first
        assert await self.is_missing(first.replace("/0", "/2"))

    async def test_what_was_given_up_keeps_its_name_and_the_next_one_gets_another(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        given_up = await self.kept(0, "its answer was lost, and nobody asked again")
        ref = await self.kept(0, "the next")
        assert ref != given_up
        assert await self.two.get_output(CALL, ref) == "the next"

    async def test_whatever_counter_is_claimed_there_is_no_gap(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        refs = [await self.kept(counter, f"text {counter}") for counter in (7, 1, 2**40, 0)]
        assert [ref.partition("/")[2] for ref in refs] == ["0", "1", "2", "3"]

    async def test_two_at_once_get_a_name_each(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        refs: list[str | None] = []

        async def keep(text: str) -> None:
            refs.append(await self.two.put_output(CALL, "w1", 0, text))

        await at_once(*(partial(keep, f"text {n}") for n in range(5)))
        assert len({*refs, None}) == 6

    async def test_a_writer_without_an_entry_has_no_name_for_one(self) -> None:
        assert await self.one.put_output(CALL, "w1", 0, SECRET) is None
        run = await self.one.open_run(CALL, request("w1"))
        await self.one.append_provisional(CALL, "w2", 1, turns("early"), run, 0)
        assert await self.kept(0, "provisional", "w2")
        assert await self.two.put_output(CALL, "nobody", 0, SECRET) is None
        assert not self.contains(SECRET.encode())

    async def test_an_output_over_its_size_is_refused_and_nothing_is_kept(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        for text in ("x" * (LONGEST + 1), "\u00e4" * (LONGEST // 2 + 1), "\ud800"):
            with pytest.raises(InvalidRecord):
                await self.one.put_output(CALL, "w1", 0, text)
        assert await self.kept(0, "fits") == "0/0"

    @pytest.mark.parametrize(
        "ref", ["", "0", "0/0/0", "0/", "../cells/head", "-1/0", "0/x", "\u0661/0", "9" * 99 + "/0"]
    )
    async def test_what_is_no_ref_is_missing(self, ref: str) -> None:
        await self.one.acquire(CALL, request("w1"))
        assert await self.is_missing(ref)
        assert await self.is_missing("0/0")

    # --- erasure --------------------------------------------------------------------------------

    async def test_after_an_erase_no_byte_of_an_output_is_left(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        refs = [await self.kept(counter, f"{SECRET} {counter}") for counter in range(5)]
        await self.two.append_provisional(CALL, "w2", 1, turns("x"), grant.run, grant.epoch)
        refs.append(await self.kept(0, f"{SECRET} of the other", "w2"))
        assert self.contains(SECRET.encode())
        await self.two.erase(CALL)
        assert not self.contains(SECRET.encode())
        assert all([await self.is_missing(ref) for ref in refs])

    async def test_a_late_output_finds_its_name_taken(self) -> None:
        """Whatever it claims, and whether or not it had read of the erasure."""
        await self.one.acquire(CALL, request("w1"))
        await self.kept(0, SECRET)
        await self.two.erase(CALL)
        for engine in (self.one, self.two):
            for counter in (0, 1, 2, 3, 99):
                with pytest.raises(Erased):
                    await engine.put_output(CALL, "w1", counter, SECRET)
        assert not self.contains(SECRET.encode())

    async def test_an_output_kept_while_it_is_erased_is_erased_too(self) -> None:
        """Each order of its create and the eraser's steps: none leaves a byte."""
        for late in range(12):
            call = f"call {late}"
            await self.one.acquire(call, request("w1"))
            assert await self.one.put_output(call, "w1", 0, "kept before") is not None

            async def keep(call: str = call, late: int = late) -> None:
                for _ in range(late):
                    await self.one.store.get_cell(call, "head")
                try:
                    await self.one.put_output(call, "w1", 1, SECRET)
                except Erased:
                    return

            await at_once(partial(self.two.erase, call), keep)
            assert not self.contains(SECRET.encode()), late

    async def test_while_an_erasure_is_unfinished_nothing_of_before_is_kept(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        await self.kept(0, SECRET)

        async def died(call: str, start: int, entries: Sequence[bytes]) -> None:
            raise RuntimeError("the eraser died here")

        self.two.store.replace = died  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await self.two.erase(CALL)
        await self.one.read(CALL)
        with pytest.raises(Erased):
            await self.one.put_output(CALL, "w1", 1, SECRET)
        await self.one.finish_erasure(CALL)
        assert not self.contains(SECRET.encode())

    async def test_an_erased_output_is_taken_by_no_new_run(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        await self.kept(0, SECRET)
        await self.two.erase(CALL)
        other = Origin(room_sid="RM_two")
        position = (await self.two.read(CALL, other)).position
        await self.two.acquire(CALL, request("w4", origin=other, read=position))
        ref = await self.kept(0, "of the new run", "w4")
        await self.one.finish_erasure(CALL)
        assert await self.two.get_output(CALL, ref) == "of the new run"
        assert not self.contains(SECRET.encode())
