"""A tool call's beginning is durable under the lease, or whoever asked is told that it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from recall_livekit import (
    Action,
    Call,
    CallState,
    OutboxFull,
    ReadOnly,
    Recall,
    Resolved,
    StoreUnavailable,
)
from recall_livekit.cli.opening import folded
from recall_livekit.models import RECORD_CHARS
from recall_livekit.open_calls import REMEMBERED, OpenCalls
from recall_livekit.redaction import WITHHELD

from ..conftest import OpenRecall, transport_of
from .freezer import Freezer
from .test_call import until

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]
CALL = "shop"
CARD = '{"card": "seven"}'


async def actions(recall: Recall) -> list[Action]:
    run = (await folded(recall, CALL)).history().run()
    return [one.action for one in run.actions] if run else []


def lose_answers(recall: Recall, name: str, many: int = 1) -> list[str]:
    """Have the first requests of this kind done, and their answers lost."""
    transport, lost = transport_of(recall), list[str]()
    real: Callable[..., Any] = getattr(transport, name)

    async def asked(*what: Any, **how: Any) -> Any:
        answer = await real(*what, **how)
        if len(lost) < many:
            lost.append(name)
            raise StoreUnavailable("fault: the answer was lost")
        return answer

    setattr(transport, name, asked)
    return lost


def hold_back(recall: Recall, name: str) -> anyio.Event:
    """Have requests of this kind wait until what is returned is set."""
    transport, go_on = transport_of(recall), anyio.Event()
    real: Callable[..., Any] = getattr(transport, name)

    async def asked(*what: Any, **how: Any) -> Any:
        await go_on.wait()
        return await real(*what, **how)

    setattr(transport, name, asked)
    return go_on


def started(recall: Recall, **options: Any) -> Call:
    call = recall.resume(CALL, **options)
    call.start()
    return call


# --- begun under the lease ----------------------------------------------------------------------


async def test_a_holders_begin_is_durable_when_it_returns(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        begun = await call.begin_action("charge", arguments=CARD, call_id="c1", agent="till")
        assert begun.durable
        [open_call] = (await open_recall().read(CALL)).actions
        assert (open_call.key, open_call.status, open_call.call_id, open_call.agent) == (
            begun.key,
            "started",
            "c1",
            "till",
        )
        call.end_action(begun.key, "done", result="paid")
        assert await call.flush(2)
    [one] = await actions(open_recall())
    assert (one.status, one.result, one.arguments, one.unrecorded) == ("done", "paid", CARD, False)


async def test_a_worker_that_acquires_waits_for_its_lease(open_recall: OpenRecall) -> None:
    recall = open_recall(action_wait=5.0)
    granted = hold_back(recall, "acquire")
    call = started(recall)
    await until(lambda: call.state is CallState.ACQUIRING)
    begun = []
    async with anyio.create_task_group() as tasks:

        async def begin() -> None:
            begun.append(await call.begin_action("charge"))

        tasks.start_soon(begin)
        await anyio.sleep(0.1)
        assert begun == []
        assert call.lag == 0, "it is not sent without the lease: two workers could have it so"
        granted.set()
    assert begun[0].durable
    await call.aclose()
    [one] = (await folded(open_recall(), CALL)).history().run().actions  # type: ignore[union-attr]
    assert one.standing == "held"


async def test_a_lease_that_does_not_come_in_time_leaves_it_unrecorded(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall(action_wait=0.1)
    granted = hold_back(recall, "hold_lock")
    call = started(recall)
    await until(lambda: call.state is CallState.ACQUIRING)
    asked = time.monotonic()
    begun = await call.begin_action("charge")
    assert time.monotonic() - asked >= 0.1
    assert not begun.durable
    await call.flush(2)
    [waiting] = (await open_recall().read(CALL)).actions
    assert waiting.key == begun.key, "it is there, but another may have begun the same"
    granted.set()
    call.end_action(begun.key, "done")
    assert await call.flush(5)
    await call.aclose()
    assert [(a.status, a.unrecorded) for a in await actions(open_recall())] == [("done", True)]


async def test_a_frozen_store_costs_the_wait_and_no_more(open_recall: OpenRecall) -> None:
    freezer = Freezer(timeout=0.3)
    async with open_recall(faults=freezer, action_wait=0.2, flush_wait=5.0).resume(CALL) as call:
        freezer.freeze()
        asked = time.monotonic()
        begun = await call.begin_action("charge")
        assert 0.2 <= time.monotonic() - asked < 2.0
        assert not begun.durable
        call.end_action(begun.key, "abandoned")
        freezer.thaw()
    assert (await open_recall().read(CALL)).actions == ()


async def test_a_lost_answer_is_asked_for_again_within_the_wait(open_recall: OpenRecall) -> None:
    recall = open_recall(action_wait=5.0)
    async with recall.resume(CALL) as call:
        lost = lose_answers(recall, "append")
        assert (await call.begin_action("charge")).durable
        assert lost == ["append"]
    assert len(await actions(open_recall())) == 1


async def test_what_was_tried_without_the_lease_never_counts_as_under_it(
    open_recall: OpenRecall,
) -> None:
    """Sent again under the lease it is answered as known (rule 4): that says nothing."""
    recall = open_recall()
    granted = hold_back(recall, "hold_lock")
    lost = lose_answers(recall, "append_provisional", many=3)
    call = started(recall)
    await until(lambda: call.state is CallState.ACQUIRING)
    call.record_action("charge")
    receipt = call._outbox.receipt(1)
    await until(lambda: lost)
    granted.set()
    with anyio.fail_after(10):
        await receipt.wait()
    assert call.state is CallState.HOLDING
    assert receipt.epoch == 0
    assert (await call.begin_action("charge")).durable, "and the next one counts"
    await call.aclose()


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_worker_that_stood_still_looks_at_its_lease_before_it_acts(
    open_recall: OpenRecall, trusted: bool
) -> None:
    wait = 5.0 if trusted else 0.2
    async with open_recall(action_wait=wait, lease_ttl=600.0).resume(CALL) as call:
        call._keeper.suspect = True  # as the pulse says it
        if trusted:
            call._keeper.check_now()
        assert (await call.begin_action("charge")).durable is trusted
        assert call._keeper.suspect is not trusted
        call._keeper.trust()


# --- without the call ---------------------------------------------------------------------------


async def test_a_fenced_worker_and_a_standby_begin_nothing(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as fenced:
        await fenced.flush(2)
        async with open_recall().resume(CALL, if_held="steal"):
            await until(lambda: not fenced.may_act)
            with pytest.raises(ReadOnly):
                await fenced.begin_action("charge")
            standby = started(open_recall())
            await until(lambda: standby.state is CallState.STANDBY)
            with pytest.raises(ReadOnly):
                await standby.begin_action("look", action_class="pure")
            await standby.aclose()
    assert await actions(open_recall()) == []


async def test_the_lease_is_lost_between_the_begin_and_its_acknowledgement(
    open_recall: OpenRecall,
) -> None:
    """It does not run, and nobody has to wonder whether it did."""
    freezer = Freezer(timeout=5.0)
    call = started(open_recall(faults=freezer, action_wait=10.0))
    assert await call.holding(5)
    freezer.freeze()
    raised: list[Exception] = []

    async def begin() -> None:
        try:
            await call.begin_action("charge", arguments=CARD)
        except ReadOnly as error:
            raised.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin)
        await until(lambda: call.lag == 1)
        async with open_recall().resume(CALL, if_held="steal") as other:
            freezer.thaw()
            await until(lambda: raised, 10)
            assert await call.flush(5)
            assert [(a.tool, a.status) for a in await actions(open_recall())] == [
                ("charge", "abandoned")
            ]
            assert (await open_recall().read(CALL)).actions == ()
            assert other.open_actions == ()
    await call.aclose()


async def test_while_the_call_is_handed_over_nothing_begins(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL) as call:
        call._keeper._giving = object()  # type: ignore[assignment]
        with pytest.raises(ReadOnly):
            await call.begin_action("charge")
        call._keeper._giving = None
    assert await actions(open_recall()) == []


async def test_after_an_erasure_tools_run_and_nothing_of_them_is_written(
    open_recall: OpenRecall,
) -> None:
    call = started(open_recall(), room_sid="RM_1")
    assert await call.holding(5)
    begun = await call.begin_action("charge")
    await open_recall().erase(CALL)
    await until(lambda: call.lost == "erased", 10)
    assert call.may_act
    with pytest.raises(ReadOnly):
        await call.begin_action("charge")
    with pytest.raises(ReadOnly):
        call.end_action(begun.key)
    await call.aclose()


# --- what a dead worker left --------------------------------------------------------------------


async def left_open(
    open_recall: OpenRecall, action_class: Any, *, arguments: str = CARD, **options: Any
) -> str:
    """A worker began this and died; return the key."""
    recall = open_recall()
    call = started(recall, **options)
    assert await call.holding(5)
    begun = await call.begin_action("put", action_class=action_class, arguments=arguments)
    assert await call.flush(2)
    transport_of(recall)
    call._task.cancel()  # type: ignore[union-attr]
    await until(lambda: call.state is CallState.CLOSED, 10)
    return begun.key


async def test_an_idempotent_call_waits_for_the_records_that_have_its_key(
    open_recall: OpenRecall,
) -> None:
    """With another key it would happen twice."""
    key = await left_open(open_recall, "idempotent")
    freezer = Freezer(timeout=0.1, frozen=True)
    call = started(open_recall(faults=freezer, action_wait=20.0))
    asyncio.get_running_loop().call_later(0.5, freezer.thaw)
    assert not call.known
    begun = await call.begin_action("put", action_class="idempotent", arguments=CARD)
    assert (begun.key, begun.durable) == (key, True)
    await call.aclose()


async def test_a_repeated_call_that_is_cancelled_may_have_happened_the_first_time(
    open_recall: OpenRecall,
) -> None:
    key = await left_open(open_recall, "idempotent")
    freezer = Freezer(timeout=5.0)
    call = started(open_recall(faults=freezer, action_wait=20.0))
    assert await call.holding(5)
    freezer.freeze()
    async with anyio.create_task_group() as tasks:
        how = {"action_class": "idempotent", "arguments": CARD}
        tasks.start_soon(lambda: call.begin_action("put", **how))  # type: ignore[arg-type]
        await until(lambda: call.lag == 1)
        tasks.cancel_scope.cancel()
    freezer.thaw()
    assert await call.flush(5)
    assert [action.key for action in (await open_recall().read(CALL)).actions] == [key]
    await call.aclose()


async def test_arguments_that_are_too_long_to_be_recorded_whole_are_not_the_same(
    open_recall: OpenRecall,
) -> None:
    """They would be alike as far as they are recorded."""
    one, other = (f'{{"text": "{"x" * RECORD_CHARS}{end}"}}' for end in "ab")
    key = await left_open(open_recall, "idempotent", arguments=one)
    async with open_recall().resume(CALL) as call:
        begun = await call.begin_action("put", action_class="idempotent", arguments=other)
        assert begun.key != key


def test_calls_without_an_outcome_are_remembered_up_to_a_number() -> None:
    calls = OpenCalls("w")
    for number in range(2 * REMEMBERED):
        action = Action(at=1.0, key=f"w-{number}", tool="put", action_class="idempotent")
        calls.began(action)
        calls.ended(action.model_copy(update={"status": "unknown"}))
    assert len(calls.repeatable(None)) == REMEMBERED


async def test_a_key_that_came_to_nothing_is_given_out_again(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was not made again after all: with another key the next try would be a second."""

    def full(action: Action) -> int:
        raise OutboxFull("full")

    key = await left_open(open_recall, "idempotent")
    async with open_recall().resume(CALL) as call:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(call, "_queue_action", full)
            with pytest.raises(OutboxFull):
                await call.begin_action("put", action_class="idempotent", arguments=CARD)
        again = await call.begin_action("put", action_class="idempotent", arguments=CARD)
        assert again.key == key


async def test_the_key_of_an_open_idempotent_call_is_given_out_once(
    open_recall: OpenRecall,
) -> None:
    key = await left_open(open_recall, "idempotent")
    async with open_recall().resume(CALL) as call:
        how: dict[str, Any] = {"action_class": "idempotent"}
        assert (await call.begin_action("put", arguments='{"card": "eight"}', **how)).key != key
        assert (await call.begin_action("get", arguments=CARD, **how)).key != key
        again = await call.begin_action("put", arguments='{"card":"seven"}', **how)
        assert again.key == key
        assert (await call.begin_action("put", arguments=CARD, **how)).key != key
        call.end_action(key, "unknown")
        assert (await call.begin_action("put", arguments=CARD, **how)).key == key
        call.end_action(key, "done")
        assert (await call.begin_action("put", arguments=CARD, **how)).key != key


@pytest.mark.parametrize("works", [True, False])
async def test_arguments_are_compared_as_they_are_recorded(
    open_recall: OpenRecall, works: bool
) -> None:
    def redact(text: str) -> str:
        if not works:
            raise ValueError
        return text.replace("seven", "***")

    key = await left_open(open_recall, "idempotent", redact=redact)
    async with open_recall().resume(CALL, redact=redact) as call:
        assert call.briefing.actions[0].arguments == ('{"card": "***"}' if works else WITHHELD)
        begun = await call.begin_action("put", action_class="idempotent", arguments=CARD)
        assert (begun.key == key) is works


async def test_reconcile_records_what_was_found_and_the_next_worker_knows(
    open_recall: OpenRecall,
) -> None:
    key = await left_open(open_recall, "external")

    async def look(action: Action) -> Resolved | None:
        return Resolved("done", "receipt 7") if action.key == key else None

    async with open_recall().resume(CALL) as call:
        assert [a.key for a in call.open_actions] == [key]
        assert "Tool calls whose outcome is open" in call.briefing.text
        assert await call.reconcile(look) == ()
        assert call.briefing is call.briefing
        assert [(a.status, a.result) for a in call.briefing.finished] == [("done", "receipt 7")]
        assert "Tool calls whose outcome is open" not in call.briefing.text
        assert "receipt 7" in call.briefing.text
    briefing = await open_recall().read(CALL)
    assert briefing.actions == ()
    assert [(a.tool, a.result, a.arguments) for a in briefing.finished] == [
        ("put", "receipt 7", CARD)
    ]
    assert [one.tool for one in await actions(open_recall())] == ["put"]


@pytest.mark.parametrize("answer", ["receipt 7", Resolved("ok", "7"), 7])  # type: ignore[arg-type]
async def test_an_answer_that_is_none_leaves_a_call_open_and_harms_no_other(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    key = await left_open(open_recall, "external")
    other = await left_open(open_recall, "external")

    def look(action: Action) -> Any:  # nor is it a coroutine function
        return answer if action.key == key else Resolved("done", "receipt 8")

    async with open_recall().resume(CALL) as call:
        assert [action.key for action in await call.reconcile(look)] == [key]
        assert [action.key for action in call.briefing.finished] == [other]
    assert 'return Resolved("done", result)' in caplog.text


async def test_what_is_reconciled_before_the_lease_stays_so_with_the_lease(
    open_recall: OpenRecall,
) -> None:
    """The grant's briefing may be older than what the resolver found out."""
    await left_open(open_recall, "external")
    recall = open_recall()
    held = hold_back(recall, "hold_lock")
    call = started(recall)
    assert await call.ready(5)
    older, real = call.briefing, transport_of(recall).acquire

    async def acquire(*what: Any) -> Any:
        return (await real(*what)).model_copy(update={"briefing": older.model_copy()})

    transport_of(recall).acquire = acquire

    async def look(_: Action) -> Resolved | None:
        return Resolved("failed", "not charged")

    assert await call.reconcile(look) == ()
    held.set()
    assert await call.holding(5)
    assert call.open_actions == ()
    assert [a.status for a in call.briefing.finished] == ["failed"]
    await call.aclose()
    assert (await open_recall().read(CALL)).actions == ()


async def test_its_own_calls_are_never_among_what_others_left_open(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall(action_wait=0.05)
    granted = hold_back(recall, "hold_lock")
    call = started(recall)
    assert await call.ready(5)
    begun = await call.begin_action("charge")
    assert await call.flush(5)
    granted.set()
    assert await call.holding(5)
    assert [a.key for a in (await open_recall().read(CALL)).actions] == [begun.key]
    assert call.open_actions == ()
    assert call.briefing.actions == ()
    await call.aclose()


async def test_without_the_records_or_the_call_nothing_can_be_reconciled(
    open_recall: OpenRecall,
) -> None:
    async def look(_: Action) -> Resolved | None:
        return None

    recall = open_recall()
    hold_back(recall, "read")
    unread = started(recall)
    with pytest.raises(StoreUnavailable):
        await unread.reconcile(look)
    await unread.aclose()
    async with open_recall().resume(CALL):
        standby = started(open_recall())
        await until(lambda: standby.state is CallState.STANDBY)
        with pytest.raises(ReadOnly):
            await standby.reconcile(look)
        await standby.aclose()
