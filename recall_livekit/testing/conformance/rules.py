"""The rules of the chain that a store could break, run through the real engine on it."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from ...engine.engine import Engine
from ...engine.liveness import Liveness
from ...engine.requests import Grant
from ...engine.runs import Origin
from ...errors import Erased, Fenced, Gap, Held, RecallError, UnknownRun
from ...models import Partial, Record, Userdata
from ..clock import FakeClock
from .base import at_once
from .outputs import OutputRules
from .workers import CALL, ROOM, SECRET, TTL, request, turns

__all__ = ["RulesConformance"]


class RulesConformance(OutputRules):
    """The rules of entries, leases, runs, snapshots and erasure; `OutputRules` adds outputs."""

    # --- order and fencing ----------------------------------------------------------------------

    async def test_a_stale_epoch_is_refused_whatever_the_position(self) -> None:
        old = await self.one.acquire(CALL, request("w1"))
        await self.one.append(CALL, "w1", 1, turns("a"), old.epoch)
        new = await self.two.acquire(CALL, request("w2", steal=True))
        assert new.epoch == old.epoch + 1
        with pytest.raises(Fenced) as fenced:
            await self.one.append(CALL, "w1", 2, turns("late"), old.epoch)
        assert fenced.value.holder == "w2"
        assert await self.said() == ["a"]

    async def test_a_retry_after_a_lost_answer_adds_nothing(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        await self.one.append(CALL, "w1", 1, turns("a", "b"), grant.epoch)
        ack = await self.one.append(CALL, "w1", 1, turns("a", "b"), grant.epoch)
        other_server = await self.two.append(CALL, "w1", 1, turns("a", "b"), grant.epoch)
        assert ack.last == other_server.last == 2
        assert await self.said() == ["a", "b"]

    async def test_a_known_number_is_done_even_for_a_fenced_writer(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        await self.one.append(CALL, "w1", 1, turns("a"), grant.epoch)
        await self.two.acquire(CALL, request("w2", steal=True))
        assert (await self.one.append(CALL, "w1", 1, turns("a"), grant.epoch)).last == 1
        assert await self.said() == ["a"]

    async def test_a_gap_is_refused_with_the_number_that_is_missing(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        with pytest.raises(Gap) as gap:
            await self.one.append(CALL, "w1", 2, turns("b"), grant.epoch)
        assert gap.value.expected == 1
        assert await self.said() == []

    async def test_appends_through_two_engines_keep_one_order(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        for number in range(1, 41):
            engine = self.one if number % 3 else self.two
            await engine.append(CALL, "w1", number, turns(str(number)), grant.epoch)
        assert await self.said() == [str(number) for number in range(1, 41)]

    # --- leases ---------------------------------------------------------------------------------

    async def test_of_two_takers_at_once_one_gets_it(self) -> None:
        won: list[Grant] = []
        lost: list[RecallError] = []

        async def take(engine: Engine, writer: str) -> None:
            try:
                won.append(await engine.acquire(CALL, request(writer)))
            except Held as error:
                lost.append(error)

        await at_once(partial(take, self.one, "w1"), partial(take, self.two, "w2"))
        assert len(won) == len(lost) == 1
        assert won[0].run == 1

    async def test_an_attempt_repeated_gets_the_same_grant(self) -> None:
        first = await self.one.acquire(CALL, request("w1", attempt="x"))
        again = await self.two.acquire(CALL, request("w1", attempt="x"))
        assert (again.epoch, again.run) == (first.epoch, first.run)

    async def test_a_late_copy_of_an_attempt_takes_nothing_back(self) -> None:
        grant = await self.one.acquire(CALL, request("w1", attempt="x"))
        await self.one.release(CALL, "w1", grant.epoch, "handover")
        with pytest.raises(Fenced):
            await self.two.acquire(CALL, request("w1", attempt="x"))

    async def test_a_late_copy_of_an_older_attempt_fences_its_own_writer_not(self) -> None:
        await self.one.acquire(CALL, request("w1", attempt="x"))
        newer = await self.one.acquire(CALL, request("w1", attempt="y"))
        with pytest.raises(Fenced):
            await self.two.acquire(CALL, request("w1", attempt="x"))
        await self.one.append(CALL, "w1", 1, turns("still mine"), newer.epoch)

    async def test_a_holder_keeps_it_up_to_its_deadline_and_not_beyond(self) -> None:
        await self.one.acquire(CALL, request("w1"))
        self.clock.advance(TTL)
        with pytest.raises(Held):
            await self.two.acquire(CALL, request("w2"))
        self.clock.advance(0.001)
        assert (await self.two.acquire(CALL, request("w2"))).epoch == 2

    async def test_a_renewal_moves_the_deadline(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        for _ in range(4):
            self.clock.advance(TTL / 2)
            await self.one.renew(CALL, "w1", grant.epoch)
            assert (await self.two.read(CALL, ROOM)).liveness is Liveness.LIVE

    async def test_a_clock_that_jumps_takes_no_call_that_is_seen_to_be_renewed(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        ahead = FakeClock(skew=3600.0)
        taker = Engine(self.open_store(), ahead)
        await taker.read(CALL, ROOM)
        for _ in range(3):
            ahead.advance(TTL / 3)
            self.clock.advance(TTL / 3)
            await self.one.renew(CALL, "w1", grant.epoch)
            with pytest.raises(Held):
                await taker.acquire(CALL, request("w2"))
        await taker.aclose()

    async def test_a_dead_holders_fast_clock_does_not_keep_the_call(self) -> None:
        fast = Engine(self.open_store(), FakeClock(skew=3600.0))
        await fast.acquire(CALL, request("w1"))
        await fast.aclose()
        assert (await self.two.read(CALL, ROOM)).liveness is Liveness.LIVE
        self.clock.advance(TTL)
        assert (await self.two.acquire(CALL, request("w2"))).epoch == 2

    async def test_a_released_lease_is_free_at_once_and_its_holder_fenced(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        await self.one.release(CALL, "w1", grant.epoch, "handover")
        await self.one.release(CALL, "w1", grant.epoch, "handover")
        with pytest.raises(Fenced):
            await self.one.append(CALL, "w1", 1, turns("late"), grant.epoch)
        assert (await self.two.acquire(CALL, request("w2"))).resumed

    async def test_a_late_release_touches_nothing_of_the_next_lease(self) -> None:
        old = await self.one.acquire(CALL, request("w1"))
        new = await self.two.acquire(CALL, request("w2", steal=True))
        with pytest.raises(Fenced):
            await self.one.release(CALL, "w1", old.epoch, "ended")
        await self.two.append(CALL, "w2", 1, turns("mine"), new.epoch)

    async def test_a_waiter_returns_when_the_call_is_released(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.two.wait_free, CALL)
                await anyio.sleep(0.05)
                await self.one.release(CALL, "w1", grant.epoch, "handover")
                self.clock.advance(1.0)

    # --- runs and provisional entries -----------------------------------------------------------

    async def test_two_newcomers_open_one_run_for_one_room(self) -> None:
        runs: list[int] = []

        async def open_run(engine: Engine, writer: str) -> None:
            runs.append(await engine.open_run(CALL, request(writer)))

        await at_once(partial(open_run, self.one, "w1"), partial(open_run, self.two, "w2"))
        assert runs == [1, 1]

    async def test_provisional_records_count_after_the_old_holders_last(self) -> None:
        old = await self.one.acquire(CALL, request("w1"))
        await self.one.append(CALL, "w1", 1, turns("a"), old.epoch)
        await self.two.append_provisional(CALL, "w2", 1, turns("c"), old.run, old.epoch)
        await self.one.append(CALL, "w1", 2, turns("b"), old.epoch)
        assert await self.said() == ["a", "b", "c"]
        new = await self.two.acquire(CALL, request("w2", steal=True))
        await self.two.append(CALL, "w2", 2, turns("d"), new.epoch)
        assert await self.said() == ["a", "b", "c", "d"]

    async def test_a_second_crash_before_the_lease_loses_nothing(self) -> None:
        run = await self.one.open_run(CALL, request("w1"))
        await self.one.append_provisional(CALL, "w1", 1, turns("a"), run, 0)
        grant = await self.two.acquire(CALL, request("w2"))
        assert grant.run == run
        assert [turn.content for turn in grant.briefing.turns] == ["a"]

    async def test_late_records_are_history_and_change_no_state(self) -> None:
        old = await self.one.acquire(CALL, request("w1"))
        new = await self.two.acquire(CALL, request("w2", steal=True))
        await self.two.append(CALL, "w2", 1, [Userdata(at=2.0, data={"step": 2})], new.epoch)
        late: list[Record] = [*turns("late"), Userdata(at=1.0, data={"step": 1})]
        await self.one.append_provisional(CALL, "w1", 1, late, old.run, old.epoch)
        reading = await self.two.read(CALL, ROOM)
        assert [turn.content for turn in reading.briefing.turns] == ["late"]
        assert reading.briefing.userdata == {"step": 2}

    async def test_a_record_of_a_run_that_nobody_opened_is_refused(self) -> None:
        with pytest.raises(UnknownRun):
            await self.one.append_provisional(CALL, "w1", 1, turns("a"), 1, 0)

    # --- snapshots ------------------------------------------------------------------------------

    async def test_a_snapshot_and_its_tail_are_the_whole_fold(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        for number in range(1, 31):
            await self.one.append(CALL, "w1", number, turns(str(number)), grant.epoch)
        await self.two.append_provisional(CALL, "w2", 1, turns("w"), grant.run, grant.epoch)
        fresh = Engine(self.open_store(), self.clock)
        briefing = (await fresh.read(CALL, ROOM)).briefing
        assert fresh._chain(CALL).snapshot_position >= 8
        assert [t.content for t in briefing.turns] == [*map(str, range(1, 31)), "w"]
        ack = await fresh.append_provisional(CALL, "w2", 1, turns("w"), grant.run, grant.epoch)
        assert ack.last == 1, "a late duplicate came in past the snapshot"
        await fresh.aclose()

    # --- erasure --------------------------------------------------------------------------------

    async def erased(self) -> Grant:
        grant = await self.one.acquire(CALL, request("w1"))
        for number in range(1, 21):
            await self.one.append(CALL, "w1", number, turns(f"{SECRET} {number}"), grant.epoch)
        said = [Partial(role="user", text=SECRET, at=1.0, after=20)]
        assert await self.one.put_partials(CALL, "w1", 1, said)
        assert self.contains(SECRET.encode())
        await self.two.erase(CALL)
        return grant

    async def test_after_an_erase_no_byte_is_left(self) -> None:
        await self.erased()
        assert not self.contains(SECRET.encode())
        assert not self.contains(b"anna")
        assert not self.contains(b"RM_one")
        assert (await self.two.read(CALL, ROOM)).briefing.fresh

    async def test_late_writers_bring_nothing_back(self) -> None:
        old = await self.erased()
        later = turns(SECRET)
        said = [Partial(role="user", text=SECRET, at=2.0, after=21)]
        assert not await self.one.put_partials(CALL, "w1", 1, said)
        with pytest.raises(Fenced):
            await self.one.append(CALL, "w1", 21, later, old.epoch)
        with pytest.raises(Erased):
            await self.one.append_provisional(CALL, "w1", 21, later, old.run, old.epoch)
        with pytest.raises(Erased):
            await self.one.acquire(CALL, request("w1", attempt="2", read=99))
        await self.one._chain(CALL).write_snapshot("w1")
        assert not self.contains(SECRET.encode())

    async def test_an_erased_room_does_not_come_back_and_another_may(self) -> None:
        await self.erased()
        position = (await self.two.read(CALL, ROOM)).position
        with pytest.raises(Erased):
            await self.two.acquire(CALL, request("w2", read=position))
        other = Origin(room_sid="RM_two", caller="anna")
        with pytest.raises(Erased):
            await self.two.acquire(CALL, request("w3", origin=other, read=0))
        grant = await self.two.acquire(CALL, request("w4", origin=other, read=position))
        assert grant.run == 2
        await self.two.append(CALL, "w4", 1, turns("new"), grant.epoch)
        assert await self.said() == ["new"]

    async def test_an_unfinished_erase_is_finished_by_whoever_meets_it(self) -> None:
        grant = await self.one.acquire(CALL, request("w1"))
        await self.one.append(CALL, "w1", 1, turns(SECRET), grant.epoch)
        scrub = self.two.store.scrub
        self.two.store.scrub = _died  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await self.two.erase(CALL)
        self.two.store.scrub = scrub  # type: ignore[method-assign]
        await self.one.read(CALL)
        await self.one.finish_erasure(CALL)
        assert not self.contains(SECRET.encode())

    async def test_a_new_run_above_an_erase_is_untouched_by_finishing_it_again(self) -> None:
        await self.erased()
        other = Origin(room_sid="RM_two")
        position = (await self.two.read(CALL, other)).position
        grant = await self.two.acquire(CALL, request("w4", origin=other, read=position))
        await self.two.append(CALL, "w4", 1, turns("new"), grant.epoch)
        await self.one.finish_erasure(CALL)
        assert await self.said() == ["new"]


async def _died(call: str) -> None:
    raise RuntimeError("the eraser died here")
