"""Rooms, standbys and takeovers that once went wrong: each harmed a caller who did nothing."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import anyio
import pytest

from recall_livekit import (
    Call,
    CallState,
    Closed,
    Erased,
    InvalidRecord,
    Origin,
    Recall,
    Settings,
    StoreUnavailable,
)
from recall_livekit.engine.entries import RunEntry, dump_entry
from recall_livekit.stores.keys import call_key
from recall_livekit.stores.memory import MemoryBucket, MemoryStore
from recall_livekit.stores.sqlite import SqliteStore

from ..conftest import OpenRecall, engine_of, transport_of
from ..files import contains
from .freezer import Freezer
from .test_call import CALL, said, until

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]


async def held(call: Call, seconds: float = 2.0) -> Call:
    call.start()
    assert await call.holding(seconds)
    return call


# --- rooms --------------------------------------------------------------------------------------


async def test_words_under_way_are_never_briefed_to_the_next_caller(
    open_recall: OpenRecall,
) -> None:
    first = await held(
        open_recall(partial_interval=0.01).resume(CALL, room_sid="RM_1", caller="anna")
    )
    first.record_turn("user", "hi")
    first.partial("user", "my pin is 4711 and")
    await first.flush(1)
    await anyio.sleep(0.1)
    await first.aclose("ended")
    second = await held(open_recall().resume(CALL, room_sid="RM_2", caller="bob"))
    assert second.briefing.fresh
    assert "4711" not in second.briefing.model_dump_json()
    await second.aclose()


async def test_a_new_room_is_free_at_once_and_the_old_worker_does_not_take_it_back(
    open_recall: OpenRecall,
) -> None:
    old = await held(open_recall().resume(CALL, room_sid="RM_1", caller="anna"))
    old.record_turn("user", "in the old room")
    await old.flush(1)
    new = await held(open_recall().resume(CALL, room_sid="RM_2", caller="bob"), 1)
    await until(lambda: old.state is CallState.CLOSED, 3)
    assert old.lost == "over"
    new.record_turn("user", "in the new room")
    assert await new.flush(1)
    assert new.state is CallState.HOLDING
    assert await said(open_recall()) == ["in the new room"]
    await new.aclose()


async def test_the_standby_of_a_call_that_ended_ends_too(open_recall: OpenRecall) -> None:
    first = await held(open_recall().resume(CALL, room_sid="RM_1"))
    first.record_turn("user", "goodbye")
    standby = open_recall().resume(CALL, room_sid="RM_1")
    standby.start()
    await until(lambda: standby.state is CallState.STANDBY)
    await first.aclose("ended")
    await until(lambda: standby.state is CallState.CLOSED)
    assert standby.lost == "over"


async def test_a_same_call_that_raises_makes_a_new_run(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL, room_sid="RM_1") as call:
        call.record_turn("user", "hello")

    def same_call(previous: Origin, current: Origin) -> bool:
        raise RuntimeError("the application's own fault")

    call = await held(open_recall(same_call=same_call).resume(CALL, room_sid="RM_2"))
    assert call.briefing.run == 2
    await call.aclose()


# --- takeovers ----------------------------------------------------------------------------------


async def test_what_was_queued_before_a_loss_changes_no_state_even_after_holding_again(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer()
    first = await held(open_recall(faults=freezer).resume(CALL))
    freezer.freeze()
    first.record_turn("user", "said before")
    first.update_working_state(goal="old")
    first.record_userdata({"v": "old"})
    async with open_recall().resume(CALL, if_held="steal") as second:
        second.update_working_state(goal="new")
        second.record_userdata({"v": "new"})
        await second.flush(1)
    freezer.thaw()
    assert await first.holding(5)
    first.record_turn("user", "said after")
    assert await first.flush(5)
    shown = await open_recall().read(CALL)
    assert shown.working_state is not None
    assert (shown.working_state.goal, shown.userdata) == ("new", {"v": "new"})
    assert [turn.content for turn in shown.turns] == ["said before", "said after"]
    await first.aclose()


async def test_a_worker_that_stood_still_is_heard_again_within_the_wait_though_the_store_is_frozen(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer(timeout=5)
    call = await held(open_recall(faults=freezer, pulse_gap=0.2, flush_wait=0.2).resume(CALL))
    freezer.freeze()
    await anyio.sleep(0.1)
    time.sleep(0.3)  # noqa: ASYNC251  as under SIGSTOP
    await anyio.sleep(0.06)
    began = time.monotonic()
    assert await call.settled()
    assert time.monotonic() - began < 1.0
    freezer.thaw()
    await call.aclose()


@pytest.mark.embedded("over HTTP no lock is held")
async def test_failed_renewals_leak_no_lock(open_recall: OpenRecall, tmp_path: Any) -> None:
    freezer = Freezer(timeout=0.05)
    call = await held(open_recall(faults=freezer, retry_last=0.05).resume(CALL))
    store = freezer.stores[0]
    append = store.append

    async def full(*_: Any) -> None:
        raise StoreUnavailable("the disk is full")

    store.append = full  # type: ignore[method-assign, assignment]
    for _ in range(10):
        await call._keeper._renew(0.0)
    store.append = append  # type: ignore[method-assign]
    assert await call._keeper._renew(0.0) is not None
    assert len(os.listdir(tmp_path / "records" / "locks")) == 1  # noqa: PTH208
    await call.aclose()
    assert os.listdir(tmp_path / "records" / "locks") == []  # noqa: PTH208


async def test_a_handle_cancelled_while_it_waits_takes_nothing_later(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(CALL):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), open_recall().resume(CALL):
                raise AssertionError("it is held")
    await anyio.sleep(0.1)
    async with asyncio.timeout(1), open_recall().resume(CALL) as call:
        assert call.epoch == 2


async def test_records_said_while_the_store_was_away_are_kept_at_a_close_just_after(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer(timeout=0.2)
    recall = open_recall(faults=freezer)
    freezer.freeze()
    call = recall.resume(CALL)
    call.start()
    call.record_turn("user", "said in the dark")
    await anyio.sleep(0.3)
    freezer.thaw()
    await call.aclose()
    assert await said(open_recall()) == ["said in the dark"]


# --- ends ---------------------------------------------------------------------------------------


async def test_flush_returns_when_the_call_closes(open_recall: OpenRecall) -> None:
    freezer = Freezer()
    call = await held(open_recall(faults=freezer, flush_wait=0.2).resume(CALL))
    freezer.freeze()
    call.record_turn("user", "never durable")
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        flushed = tasks.create_task(call.flush())
        tasks.create_task(call.aclose())
    assert not flushed.result()
    freezer.thaw()


async def test_an_erased_room_says_so_and_what_was_dropped_is_not_called_durable(
    open_recall: OpenRecall,
) -> None:
    freezer = Freezer()
    call = await held(open_recall(faults=freezer).resume(CALL, room_sid="RM_1"))
    call.record_turn("user", "hello")
    await call.flush(1)
    freezer.freeze()
    call.record_turn("user", "forget this")
    await open_recall().erase(CALL)
    freezer.thaw()
    assert not await call.flush(5)
    assert call.refused == 1
    await call.aclose()
    with pytest.raises(Erased):
        async with asyncio.timeout(3), open_recall().resume(CALL, room_sid="RM_1"):
            raise AssertionError("it was erased")


async def test_erasing_a_call_with_nothing_written_stops_a_late_writer(
    open_recall: OpenRecall, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall()
    acquire, erased = transport_of(recall).acquire, anyio.Event()

    async def later(*request: Any) -> Any:
        await erased.wait()
        return await acquire(*request)

    monkeypatch.setattr(transport_of(recall), "acquire", later)
    call = recall.resume(CALL)
    call.start()
    assert await call.ready(1)
    await open_recall().erase(CALL)
    call.record_turn("user", "SECRETWORD")
    erased.set()
    assert not await call.flush(2)
    assert call.lost == "erased"
    assert not contains(tmp_path, b"SECRETWORD")
    await call.aclose()


async def test_every_room_of_an_erased_call_is_remembered_by_a_fold_that_saw_them_live(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall()
    for sid in ("RM_1", "RM_2"):
        call = await held(recall.resume(CALL, room_sid=sid))
        call.record_turn("user", sid)
        await call.aclose("ended")
    await open_recall().erase(CALL)
    await recall.read(CALL)
    for sid in ("RM_1", "RM_2"):
        with pytest.raises(Erased):
            async with asyncio.timeout(3), recall.resume(CALL, room_sid=sid):
                raise AssertionError("it was erased")


@pytest.mark.embedded("the eraser dies inside its engine")
async def test_the_next_holder_finishes_an_erasure_that_was_left_and_nobody_waits_for_it(
    open_recall: OpenRecall, tmp_path: Any
) -> None:
    async with open_recall().resume(CALL) as call:
        call.record_turn("user", "SECRETWORD")
    eraser = open_recall()

    async def died(_: str) -> None:
        raise RuntimeError("the eraser died here")

    engine_of(eraser).finish_erasure = died  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError):
        await eraser.erase(CALL)
    assert contains(tmp_path, b"SECRETWORD")
    async with open_recall().resume(CALL):
        await anyio.sleep(0.3)
        assert not contains(tmp_path, b"SECRETWORD")


async def test_what_a_crash_left_of_a_new_file_is_erased_too(tmp_path: Any) -> None:
    async with Recall(SqliteStore(tmp_path)) as recall:
        async with recall.resume(CALL) as call:
            call.record_turn("user", "hello")
        left_over = tmp_path / "calls" / f"{call_key(CALL)}.1-0.new"
        left_over.write_bytes(b"SECRETWORD")
        await recall.erase(CALL)
        assert not contains(tmp_path, b"SECRETWORD")


# --- input that once ended a call ---------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "user", "content": "x", "name": "\ud800"},
        {"role": "user", "content": "x", "message_id": 7},
        {"role": "bot", "content": "x"},
        {"role": "user", "content": None},
        {"role": "user", "content": "x", "name": "n" * 5_000_000},
    ],
)
async def test_a_bad_turn_is_refused_and_the_call_goes_on(
    open_recall: OpenRecall, bad: dict[str, Any]
) -> None:
    async with open_recall().resume(CALL) as call:
        with pytest.raises(InvalidRecord):
            call.record_turn(**bad)
        call.record_turn("user", "after it")
        assert await call.flush(1)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [100, 190, 195, 199, 205, 250, 5000])
async def test_deep_userdata_is_refused_or_can_be_read(open_recall: OpenRecall, depth: int) -> None:
    async with open_recall().resume(CALL) as call:
        try:
            call.record_userdata(nested(depth))
        except InvalidRecord:
            assert depth > 150
        call.record_turn("user", "after it")
        assert await call.flush(1)
    assert (await open_recall().read(CALL)).turns[-1].content == "after it"


async def test_a_damaged_entry_ends_no_call_and_can_be_erased() -> None:
    store = MemoryStore(MemoryBucket())
    recall = Recall(store, settings=Settings())
    await store.append(CALL, 0, dump_entry(RunEntry(epoch=0, at=1.0, writer="w", run=1)))
    await store.append(CALL, 1, b"{ damaged SECRETWORD")
    async with recall.resume(CALL) as call:
        assert call.briefing.unreadable == 1
        call.record_turn("user", "goes on")
        assert await call.flush(1)
    await recall.erase(CALL)
    assert not any(b"SECRETWORD" in entry for entry in await store.read(CALL, 0, 100))
    await recall.aclose()


async def test_redaction_reaches_nested_fields_and_names(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL, redact=lambda _: "***") as call:
        call.record_userdata(
            {"card": {"key": "pan4111", "type": "pan4112"}, "status": "pan4113", "pan4114": 1}
        )
        call.record_turn("user", "pan4115", name="pan4116")
        await call.flush(1)
        shown = (await open_recall().read(CALL)).model_dump_json()
    assert "pan411" not in shown


async def test_a_slow_redaction_withholds_nothing(open_recall: OpenRecall) -> None:
    def slow(text: str) -> str:
        time.sleep(0.006)
        return text

    async with open_recall().resume(CALL, redact=slow) as call:
        for number in range(200):
            call.record_turn("user", str(number))
        assert await call.flush(10)
        assert call.withheld == 0


async def test_a_redaction_that_exits_withholds(open_recall: OpenRecall) -> None:
    def leave(text: str) -> str:
        raise SystemExit(3)

    async with open_recall().resume(CALL, redact=leave) as call:
        call.record_turn("user", "secret")
        assert await call.flush(5)
        assert call.withheld == 1


async def test_a_store_closed_before_its_calls_is_told_and_harms_nobody(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall()
    call = await held(recall.resume(CALL))
    await recall.aclose()
    await call.aclose()
    with pytest.raises(Closed):
        call.record_turn("user", "too late")


async def test_records_that_can_never_be_stored_leave_markers_and_no_room_taken(
    open_recall: OpenRecall, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall()
    call = await held(recall.resume(CALL))
    append = transport_of(recall).append

    async def refuses(call_id: str, writer: str, first: int, records: Any, epoch: int) -> Any:
        if any(getattr(record, "content", "").startswith("poison") for record in records):
            raise InvalidRecord("the server refuses this one")
        return await append(call_id, writer, first, records, epoch)

    monkeypatch.setattr(transport_of(recall), "append", refuses)
    call.record_turn("user", "poison" + "x" * 100_000)
    assert not await call.flush(2)
    call.record_turn("user", "after it")
    assert await call.flush(2)
    assert call._outbox._size == 0
    async with Recall(SqliteStore(tmp_path / "records")) as reader:
        fold = await engine_of(reader)._chain(CALL).refresh()
    assert fold.dropped == {"turn": 1}
    assert fold.last_number(call.writer) == 2
    await call.aclose()
