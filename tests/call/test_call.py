"""A live call as a plain handle: what a worker that is no LiveKit agent uses."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from random import Random

import anyio
import anyio.lowlevel
import pytest

from recall_livekit import (
    Call,
    CallState,
    Closed,
    Held,
    InvalidCallId,
    InvalidRecord,
    OutboxFull,
    ReadOnly,
    Recall,
    StoreUnavailable,
)
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.faults import Faults, FaultyStore

from ..conftest import OpenRecall, transport_of
from .freezer import Freezer

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]
CALL = "billing-migrator"


async def until(check: object, seconds: float = 5.0) -> None:
    with anyio.fail_after(seconds):
        while not check():  # type: ignore[operator]  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def said(recall: Recall) -> list[str]:
    return [turn.content for turn in await recall.turns(CALL)]


def faulty(store: SqliteStore, faults: Faults) -> FaultyStore:
    return FaultyStore(store, Random(1), faults, timeout=0.3)


async def test_the_next_process_goes_on_where_the_last_one_stopped(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        assert call.briefing.fresh
        call.update_working_state(goal="Move billing", plan=["find", "migrate"])
        call.record_turn("assistant", "12 call sites found")
        call.record_userdata({"files": 12})
    async with open_recall().resume(CALL) as call:
        briefing = call.briefing
        assert not briefing.fresh
        assert briefing.working_state is not None
        assert briefing.working_state.plan == ("find", "migrate")
        assert briefing.userdata == {"files": 12}
        assert "12 call sites found" in briefing.text
        assert call.epoch == 2


async def test_what_was_flushed_is_durable_and_lag_tells(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        for number in range(50):
            call.record_turn("user", str(number))
        assert call.lag == 50
        assert await call.flush(5)
        assert call.lag == 0
        assert await said(open_recall()) == [str(number) for number in range(50)]


async def test_a_second_worker_waits_and_takes_over_when_the_first_leaves(
    open_recall: OpenRecall,
) -> None:
    first = open_recall().resume(CALL)
    second = open_recall().resume(CALL)
    async with first:
        first.record_turn("user", "hello")
        second.start()
        await until(lambda: second.state is CallState.STANDBY)
        assert not second.may_speak
        assert not second.may_act
        with pytest.raises(ReadOnly):
            second.record_turn("user", "heard by two")
    assert await second.holding(1)
    assert [turn.content for turn in second.briefing.turns] == ["hello"]
    await second.aclose()


async def test_if_held_leave_says_who_has_it(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as first:
        with pytest.raises(Held) as held:
            async with open_recall().resume(CALL, if_held="leave"):
                raise AssertionError("it is held")
        assert held.value.holder == first.writer


async def test_a_stolen_call_makes_its_holder_read_only_at_once(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL, if_lease_lost="leave") as first:
        first.record_turn("user", "mine")
        async with open_recall().resume(CALL, if_held="steal") as second:
            await until(lambda: first.state is CallState.READ_ONLY, 0.5)
            assert first.lost == "taken over"
            assert not first.may_speak
            with pytest.raises(ReadOnly):
                first.record_turn("user", "late")
            second.record_turn("user", "theirs")
            await second.flush(1)
            assert await said(open_recall()) == ["mine", "theirs"]


async def test_a_loser_is_a_standby_and_takes_over_again(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as first:
        async with open_recall().resume(CALL, if_held="steal") as second:
            await until(lambda: first.state is CallState.STANDBY)
            second.record_turn("user", "theirs")
        assert await first.holding(2)
        assert first.may_speak
        first.record_turn("user", "mine again")
        await first.flush(1)
        assert await said(open_recall()) == ["theirs", "mine again"]


async def test_records_queued_before_the_fence_come_in_as_late_ones(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer()
    async with open_recall(faults=freezer).resume(CALL, if_lease_lost="leave") as first:
        freezer.freeze()
        first.record_turn("user", "said while the store was frozen")
        async with open_recall().resume(CALL, if_held="steal") as second:
            second.record_turn("user", "after the takeover")
            await second.flush(1)
            freezer.thaw()
            assert await first.flush(5)
        assert await said(open_recall()) == [
            "after the takeover",
            "said while the store was frozen",
        ]


async def test_faults_lose_and_double_nothing(open_recall: OpenRecall) -> None:
    faults = Faults(drop_request=0.1, late_request=0.1, drop_answer=0.1, duplicate=0.1)
    recall = open_recall(faults=partial(faulty, faults=faults), retry_first=0.001, retry_last=0.01)
    call = recall.resume(CALL)
    call.start()
    for number in range(150):
        call.record_turn("user", str(number))
        if number % 7 == 0:
            await anyio.sleep(0.001)
    assert await call.flush(20)
    assert await said(open_recall()) == [str(number) for number in range(150)]
    await call.aclose()


async def test_what_waits_is_sent_as_soon_as_the_lease_could_be_renewed_again(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(lease_ttl=2.0, retry_first=60.0, retry_last=60.0)
    call = recall.resume(CALL)
    call.start()
    assert await call.holding(2)

    async def never(*_: object) -> None:
        raise StoreUnavailable("the store is away")

    with monkeypatch.context() as away:
        away.setattr(transport_of(recall), "append", never)
        away.setattr(transport_of(recall), "renew", never)
        call.record_turn("user", "said meanwhile")
        assert not await call.flush(1.0)
    assert await call.flush(10)
    assert await said(open_recall()) == ["said meanwhile"]
    await call.aclose()


async def test_what_is_refused_as_invalid_is_not_sent_in_a_tight_circle(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(retry_first=0.2)
    call = recall.resume(CALL)
    call.start()
    assert await call.holding(2)
    asked: list[object] = []

    async def refuse(*arguments: object) -> None:
        asked.append(arguments)
        raise InvalidRecord("never")

    monkeypatch.setattr(transport_of(recall), "append", refuse)
    call.record_turn("user", "hello")
    assert not await call.flush(0.5)
    assert 1 < len(asked) < 4
    await call.aclose()


async def test_turns_before_the_lease_are_provisional_and_survive_a_second_crash(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(retry_first=0.01)

    async def never(*_: object) -> None:
        raise StoreUnavailable("no answer to the acquire")

    monkeypatch.setattr(transport_of(recall), "acquire", never)
    call = recall.resume(CALL)
    call.start()
    call.record_turn("user", "said before the lease")
    assert await call.flush(5)
    assert call.state is CallState.ACQUIRING
    async with open_recall().resume(CALL) as second:
        assert [turn.content for turn in second.briefing.turns] == ["said before the lease"]
    await call.aclose()


async def test_partials_tell_where_it_was_cut_off(open_recall: OpenRecall) -> None:
    first = open_recall(partial_interval=0.01).resume(CALL)
    first.start()
    assert await first.holding(2)
    first.record_turn("user", "what is my balance")
    first.partial("assistant", "Your balance is")
    await first.flush(1)
    reader = open_recall()
    await anyio.sleep(0.2)
    [cut] = (await reader.read(CALL)).partials
    assert (cut.role, cut.text) == ("assistant", "Your balance is")
    first.record_turn("assistant", "Your balance is ten.")
    await first.flush(1)
    assert (await reader.read(CALL)).partials == ()
    await first.aclose()


async def test_a_cancelled_worker_flushes_and_hands_over(open_recall: OpenRecall) -> None:
    left: list[str] = []

    async def leave_room() -> None:
        left.append("room")

    call = open_recall().resume(CALL)
    call.on_dying(leave_room)
    call.start()
    assert await call.holding(2)
    call.record_turn("user", "the last words")
    task = call._task
    assert task is not None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == ["room"]
    assert await said(open_recall()) == ["the last words"]
    async with open_recall().resume(CALL) as second:
        assert second.briefing.turns


async def test_a_frozen_worker_is_silent_until_it_has_looked(open_recall: OpenRecall) -> None:
    import time

    call = open_recall(pulse_gap=0.2, pulse_interval=0.02).resume(CALL)
    async with call:
        await anyio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251  the event loop stands still, as under SIGSTOP
        with anyio.fail_after(1):
            while call.may_speak:
                await anyio.lowlevel.checkpoint()
        assert await call.settled()
        assert call.state is CallState.HOLDING


async def test_a_lapsed_lease_that_nobody_took_is_taken_again(open_recall: OpenRecall) -> None:
    recall = open_recall(lease_ttl=2.0)
    async with recall.resume(CALL) as call:
        keeper = call._keeper
        assert await keeper._renew(0.0) is not None, "its deadline has passed"
        assert call.epoch == 2
        assert call.state is CallState.HOLDING
        call.record_turn("user", "goes on")
        assert await call.flush(1)


async def test_an_erased_call_is_not_written_again(open_recall: OpenRecall) -> None:
    recall = open_recall()
    call = recall.resume(CALL, room_sid="RM_1", if_lease_lost="standby")
    call.start()
    assert await call.holding(2)
    call.record_turn("user", "forget me")
    await call.flush(1)
    await open_recall().erase(CALL)
    call._keeper.check_now()
    await until(lambda: call.lost == "erased")
    assert call.may_speak, "nobody else is there to speak"
    with pytest.raises(ReadOnly):
        call.record_turn("user", "again")
    assert await said(open_recall()) == []
    await call.aclose()


async def test_an_outbox_that_is_full_says_so_and_keeps_what_it_has(
    open_recall: OpenRecall,
) -> None:
    call = open_recall(outbox_records=3).resume(CALL)
    for text in "abc":
        call.record_turn("user", text)
    with pytest.raises(OutboxFull):
        call.record_turn("user", "d")
    assert call.refused == 1
    call.start()
    assert await call.flush(2)
    assert await said(open_recall()) == ["a", "b", "c"]
    await call.aclose()


async def test_bad_input_is_refused_clearly_and_loses_nothing(open_recall: OpenRecall) -> None:
    recall = open_recall()
    for bad in ("", "x" * 257, "é" * 129, "\ud800"):
        with pytest.raises(InvalidCallId):
            recall.resume(bad)
    async with recall.resume("é" * 128) as call:
        with pytest.raises(InvalidRecord, match="no field gaol"):
            call.update_working_state(gaol="typo")  # type: ignore[call-arg]
        with pytest.raises(InvalidRecord):
            call.update_working_state(plan="not a list")
        with pytest.raises(InvalidRecord):
            call.record_userdata(object())  # type: ignore[arg-type]
        call.record_turn("user", "binary \ud800 and \x00 junk")
        call.record_turn("user", "x" * 400_000)
        assert await call.flush(2)
        one, two = (await recall.turns("é" * 128))[-2:]
        assert "junk" in one.content
        assert two.content.endswith("[cut here: 400000 characters]")
    with pytest.raises(Closed):
        call.record_turn("user", "after the end")


async def test_redact_is_applied_to_everything_that_is_stored(open_recall: OpenRecall) -> None:
    def redact(text: str) -> str:
        return text.replace("4242", "****")

    async with open_recall().resume(CALL, redact=redact) as call:
        call.record_turn("user", "card 4242")
        call.update_working_state(goal="charge 4242")
        call.record_userdata({"card": ["4242"]})
        call.record_action("charge", arguments='{"card": "4242"}')
        assert await call.flush(10)
        briefing = await open_recall().read(CALL)
    assert "4242" not in briefing.model_dump_json()
    assert briefing.userdata == {"card": ["****"]}


@pytest.mark.parametrize("bad", ["raises", "hangs"])
async def test_a_redact_that_fails_withholds_and_never_blocks(
    open_recall: OpenRecall, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    import threading

    stuck = threading.Event()

    def redact(text: str) -> str:
        if bad == "raises":
            raise RuntimeError("no")
        stuck.wait(5)
        return text

    call = open_recall().resume(CALL, redact=redact)
    call._redactor._seconds = 0.1
    with caplog.at_level(logging.ERROR):
        async with call:
            call.record_turn("user", "secret")
            assert await call.flush(2)
            assert call.withheld >= 1
    stuck.set()
    assert await said(open_recall()) == ["[withheld: redaction failed]"]


async def test_an_unreadable_store_raises_within_its_wait_for_a_plain_handle(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer(frozen=True)
    recall = open_recall(faults=freezer, open_wait=0.5, flush_wait=0.1)
    with anyio.fail_after(3), pytest.raises(StoreUnavailable):
        async with recall.resume(CALL):
            raise AssertionError("it cannot be read")
    freezer.thaw()


async def test_state_changes_are_told(open_recall: OpenRecall) -> None:
    call: Call = open_recall().resume(CALL)
    seen: list[CallState] = []
    call.subscribe(seen.append)
    async with call:
        pass
    assert seen == [CallState.ACQUIRING, CallState.HOLDING, CallState.CLOSED]


async def test_an_ended_call_can_be_looked_at_and_is_not_resumed(open_recall: OpenRecall) -> None:
    call = open_recall().resume(CALL)
    call.start()
    assert await call.holding(2)
    call.record_turn("user", "goodbye")
    call.update_working_state(goal="done")
    await call.aclose("ended")
    shown = await open_recall().read(CALL)
    assert [turn.content for turn in shown.turns] == ["goodbye"]
    assert shown.working_state is not None
    async with open_recall().resume(CALL) as again:
        assert again.briefing.fresh
        assert again.briefing.run == 2
