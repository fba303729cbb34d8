"""A call that is given away on purpose, and a worker that stood still and was judged meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from recall_livekit import Call, CallState, ReadOnly, Recall, Settings, StoreUnavailable
from recall_livekit.stores.sqlite import SqliteStore

from ..conftest import OpenRecall, transport_of
from .freezer import Freezer
from .test_call import CALL, said, until
from .test_takeovers import held

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]


async def waiting(call: Call) -> Call:
    call.start()
    await until(lambda: call.state is CallState.STANDBY)
    return call


# --- handing over -------------------------------------------------------------------------------


async def test_whoever_waits_has_it_with_every_word_and_the_giver_never_takes_it_again(
    open_recall: OpenRecall,
) -> None:
    first = await held(open_recall().resume(CALL))
    second = await waiting(open_recall().resume(CALL))
    first.record_turn("user", "hello")
    first.partial("user", "and one more")
    assert await first.hand_over()
    assert (first.state, first.lost) == (CallState.READ_ONLY, "handed over")
    assert not first.may_speak
    assert not first.may_act
    with pytest.raises(ReadOnly):
        first.record_turn("user", "late")
    assert await second.holding(1)
    assert [turn.content for turn in second.briefing.turns] == ["hello"]
    assert [partial.text for partial in second.briefing.partials] == ["and one more"]
    await second.aclose()
    await anyio.sleep(0.5)
    assert first.state is CallState.READ_ONLY, "it gave the call away for good"
    await first.aclose()


async def test_whoever_waits_learns_of_it_at_once(open_recall: OpenRecall) -> None:
    first = await held(open_recall(follow_interval=30).resume(CALL))
    second = await waiting(open_recall(follow_interval=30).resume(CALL))
    assert await first.hand_over(2)
    assert second.state is CallState.HOLDING
    await second.aclose()
    await first.aclose()


async def test_where_nobody_waits_it_has_the_call_as_before(open_recall: OpenRecall) -> None:
    call = await held(open_recall().resume(CALL))
    states: list[CallState] = []
    call.subscribe(states.append)
    call.record_turn("user", "before")
    began = time.monotonic()
    assert not await call.hand_over(0.3)
    assert 0.3 <= time.monotonic() - began < 1.5
    assert states == []
    assert (call.lost, call.epoch, call.may_speak, call.may_act) == (None, 2, True, True)
    call.record_turn("user", "after")
    assert await call.flush(5)
    assert await said(open_recall()) == ["before", "after"]
    await call.aclose()


async def test_nobody_is_heard_and_no_tool_runs_while_the_call_is_free(
    open_recall: OpenRecall,
) -> None:
    call = await held(open_recall().resume(CALL))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.hand_over, 0.5)
        await until(lambda: not call.may_speak, 1)
        assert not call.may_act
        assert not await call.settled()
        call.record_turn("user", "said meanwhile")
    assert call.may_speak
    assert await call.flush(5)
    assert await said(open_recall()) == ["said meanwhile"]
    await call.aclose()


async def test_a_successor_that_comes_at_the_last_moment_has_it(open_recall: OpenRecall) -> None:
    first = await held(open_recall().resume(CALL))
    second = open_recall().resume(CALL)
    async with anyio.create_task_group() as tasks:
        handed: list[bool] = []

        async def hand_over() -> None:
            handed.append(await first.hand_over(1.0))

        tasks.start_soon(hand_over)
        await until(lambda: not first.may_speak, 1)
        await anyio.sleep(0.5)
        second.start()
    assert handed == [True]
    assert await second.holding(1)
    assert first.lost == "handed over"
    await first.aclose()
    await second.aclose()


async def test_one_that_does_not_hold_it_gives_nothing_away(open_recall: OpenRecall) -> None:
    first = await held(open_recall().resume(CALL))
    second = await waiting(open_recall().resume(CALL))
    assert not await second.hand_over(0.2)
    assert first.state is CallState.HOLDING
    await second.aclose()
    await first.aclose()
    assert not await first.hand_over(0.2)


async def test_what_cannot_be_written_is_not_given_away(open_recall: OpenRecall) -> None:
    freezer = Freezer(timeout=0.2)
    call = await held(open_recall(faults=freezer, flush_wait=0.3).resume(CALL))
    freezer.freeze()
    call.record_turn("user", "not durable")
    assert not await call.hand_over(0.3)
    assert (call.state, call.may_speak) == (CallState.HOLDING, True)
    freezer.thaw()
    assert await call.flush(5)
    await call.aclose()


async def test_nothing_is_released_while_something_is_on_its_way_to_the_records(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(flush_wait=0.3)
    call = await held(recall.resume(CALL))
    append = transport_of(recall).append

    async def slow(*request: Any) -> Any:
        await anyio.sleep(0.8)
        return await append(*request)

    monkeypatch.setattr(transport_of(recall), "append", slow)
    call.record_turn("user", "on its way")
    assert not await call.hand_over(0.3)
    assert call.epoch == 1, "it never gave it away"
    assert await call.flush(5)
    await call.aclose()


async def test_a_release_whose_outcome_is_unknown_leaves_it_the_call(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer was lost, the release was done: it is taken again, and nobody is told a thing."""
    recall = open_recall()
    release = transport_of(recall).release

    async def lost(*request: Any) -> None:
        await release(*request)
        raise StoreUnavailable("the answer was lost")

    call = await held(recall.resume(CALL))
    states: list[CallState] = []
    call.subscribe(states.append)
    monkeypatch.setattr(transport_of(recall), "release", lost)
    assert not await call.hand_over(0.3)
    monkeypatch.undo()
    await until(lambda: call.epoch == 2)
    assert states == []
    call.record_turn("user", "goes on")
    assert await call.flush(5)
    await call.aclose()


async def test_while_the_records_are_away_the_room_says_whether_it_was_taken(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release was done and a successor speaks; then nobody can read that it has the call."""
    recall, gone = open_recall(), False
    transport = transport_of(recall)
    release, read, acquire = transport.release, transport.read, transport.acquire

    async def released(*request: Any) -> None:
        nonlocal gone
        await release(*request)
        gone = True

    def away(ask: Any) -> Any:
        async def asked(*request: Any) -> Any:
            if gone:
                raise StoreUnavailable("away")
            return await ask(*request)

        return asked

    async def somebody_lives() -> bool:
        return True

    call = recall.resume(CALL)
    call.ask_first(somebody_lives)
    await held(call)
    second = await waiting(open_recall().resume(CALL))
    for name, ask in (("release", released), ("read", away(read)), ("acquire", away(acquire))):
        monkeypatch.setattr(transport, name, ask)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.hand_over, 0.2)
        assert await second.holding(2)
        for _ in range(20):
            assert not call.may_speak, "two agents talk to one caller"
            await anyio.sleep(0.05)
        gone = False
        await until(lambda: call.lost == "handed over")
    await second.aclose()
    await call.aclose()


# --- frozen -------------------------------------------------------------------------------------


def stand_still(seconds: float, meanwhile: Callable[[], Awaitable[Any]] | None = None) -> None:
    """Nothing of this worker runs, as under SIGSTOP; somebody else does something meanwhile."""
    other = threading.Thread(target=anyio.run, args=(meanwhile,)) if meanwhile else None
    if other is not None:
        other.start()
    time.sleep(seconds)
    if other is not None:
        other.join()


@pytest.mark.embedded("the server of a test would stand still as well")
@pytest.mark.parametrize("ttl", [2.0, 30.0])
async def test_who_was_judged_while_it_stood_still_does_not_come_between(
    open_recall: OpenRecall, ttl: float, tmp_path: Path
) -> None:
    """Its epoch was closed, and nobody has the call yet: another was called for. With a TTL that
    passed meanwhile it would have taken the call anew."""
    settings = Settings(lease_ttl=ttl)
    call = await held(open_recall(lease_ttl=ttl).resume(CALL))
    call.abandon()

    async def judge() -> None:
        async with Recall(SqliteStore(tmp_path / "records"), settings=settings) as watcher:
            assert await watcher.break_lease(CALL, 1)

    stand_still(2.2 if ttl == 2.0 else 0.9, judge)
    heard = []
    for _ in range(20):
        heard.append(await call.settled())
        await anyio.sleep(0.02)
    assert heard == [False] * 20, "not one frame after waking"
    assert (call.state, call.lost) == (CallState.READ_ONLY, "frozen")
    newcomer = await held(open_recall(lease_ttl=ttl).resume(CALL))
    await newcomer.aclose()
    await anyio.sleep(0.3)
    assert call.state is CallState.READ_ONLY, "it is not to have it again"
    await call.aclose()


async def test_nobody_waits_for_a_worker_that_gave_up_its_call_for_good(
    open_recall: OpenRecall,
) -> None:
    first = await held(open_recall().resume(CALL))
    first.abandon()
    async with open_recall().resume(CALL, if_held="steal"):
        await until(lambda: first.lost is not None)
        with anyio.fail_after(2):
            assert not await first.holding()
    await first.aclose()


async def test_who_stood_still_and_was_not_judged_goes_on(open_recall: OpenRecall) -> None:
    call = await held(open_recall(lease_ttl=2.0).resume(CALL))
    states: list[CallState] = []
    call.subscribe(states.append)
    stand_still(2.2)
    await until(lambda: call.epoch == 2 and call.may_speak, 2)
    assert states == []
    await call.aclose()


async def test_one_that_kept_its_call_notices_at_once_who_takes_it(open_recall: OpenRecall) -> None:
    call = await held(open_recall(lease_ttl=60).resume(CALL))
    assert not await call.hand_over(0.6)  # longer than `follow_interval`
    await anyio.sleep(0.6)
    thief = await held(open_recall().resume(CALL, if_held="steal"))
    await until(lambda: call.lost == "taken over", 1)  # it waits for the call again at once
    await thief.aclose()
    await call.aclose()
