"""A live call whose store does not answer: what it says is on the disk, and then stored, once."""

from __future__ import annotations

import logging
import time
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from recall_livekit.call import Call, CallState
from recall_livekit.spool.format import read_contents, read_record

from ..call.test_call import until
from .conftest import CALL, OpenProcess, Process

pytestmark = pytest.mark.anyio


async def held(call: Call) -> Call:
    call.start()
    assert await call.holding(2)
    return call


def texts(process: Process) -> list[str]:
    (path,) = process.directory.iterdir()
    records = read_contents(path.read_bytes()).records
    return [str(getattr(read_record(records[n]), "content", "")) for n in sorted(records)]


async def test_while_the_store_answers_nothing_touches_the_disk(process: OpenProcess) -> None:
    one = process()
    call = await held(one.call())
    for number in range(20):
        call.record_turn("user", str(number))
        await call.flush(1)
    await anyio.sleep(0.2)
    await call.aclose()
    assert not one.directory.exists()


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_what_cannot_be_stored_is_spooled_and_stored_on_return(
    process: OpenProcess, how: str
) -> None:
    one = process()
    call = await held(one.call())
    one.store.freeze()
    if how == "hangs":
        one.store._timeout = 60.0
    for text in "abc":
        call.record_turn("user", text)
    await until(lambda: call.spooled == 3)
    assert texts(one) == ["a", "b", "c"]
    assert call.lag == 3
    call.record_turn("user", "d")
    await until(lambda: call.spooled == 4)
    one.store.thaw()
    assert await call.flush(5)
    await until(lambda: list(one.directory.iterdir()) == [])
    call.record_turn("user", "e")
    assert await call.flush(5)
    assert await one.said() == ["a", "b", "c", "d", "e"]
    assert call.state is CallState.HOLDING


async def test_a_store_that_refuses_is_not_waited_for(process: OpenProcess) -> None:
    one = process(spool_after=60.0)
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "a")
    await until(lambda: call.spooled == 1)


async def test_only_its_owner_may_look(process: OpenProcess) -> None:
    one = process()
    call = await held(one.call(caller="anna"))
    one.store.freeze()
    call.record_turn("user", "secret")
    await until(lambda: call.spooled == 1)
    (path,) = one.directory.iterdir()
    assert one.directory.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert CALL not in path.name
    assert "anna" not in path.name


async def test_nothing_unredacted_is_ever_on_the_disk(process: OpenProcess) -> None:
    one = process(flush_wait=0.2)

    def redact(text: str) -> str:
        return text.replace("4242", "****")

    call = await held(one.call(redact=redact))
    one.store.freeze()
    for number in range(5):
        call.record_turn("user", f"card 4242 {number}")
    await until(lambda: call.spooled == 5)
    call.record_turn("user", "and 4242 at the end")
    await call.aclose()
    (path,) = one.directory.iterdir()
    assert b"4242" not in path.read_bytes()
    assert texts(one)[-1] == "and **** at the end"


async def test_each_record_is_redacted_once_however_often_it_is_sent(process: OpenProcess) -> None:
    one = process()
    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return f"<{text}>"

    call = await held(one.call(redact=redact))
    one.store.freeze()
    call.record_turn("user", "a")
    await until(lambda: call.spooled == 1)
    call.record_turn("user", "b")
    await anyio.sleep(0.3)
    one.store.thaw()
    assert await call.flush(5)
    assert await one.said() == ["<a>", "<b>"]
    assert seen == ["a", "b"]


async def test_a_redaction_that_hangs_at_the_end_is_withheld(process: OpenProcess) -> None:
    import threading

    stuck = threading.Event()

    def redact(text: str) -> str:
        stuck.wait(5)
        return text

    one = process(flush_wait=0.2)
    call = await held(one.call(redact=redact))
    one.store.freeze()
    call.record_turn("user", "secret")
    await call.aclose()
    stuck.set()
    assert texts(one) == ["[withheld: redaction failed]"]
    assert call.withheld == 1


async def test_a_call_that_closes_leaves_its_file_to_whoever_drains_it(
    process: OpenProcess, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = process(), process()
    one.drains_nothing()
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "goodbye")
    call.update_working_state(goal="done")
    with caplog.at_level(logging.WARNING):
        await call.aclose("ended")
    assert "2 records are spooled" in caplog.text
    assert [(file.state, file.records) for file in two.files] == [("waits", 2)]
    (drained,) = await two.drain()
    assert (drained.outcome, drained.records) == ("drained", 2)
    assert await two.said() == ["goodbye"]
    assert [summary.state async for summary in two.engine.summaries()] == ["ended"]
    assert list(one.directory.iterdir()) == []


async def test_a_file_is_its_live_calls_alone(process: OpenProcess) -> None:
    one, two = process(), process()
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "a")
    await until(lambda: call.spooled == 1)
    assert [drained.outcome for drained in await two.drain()] == ["held"]
    assert [drained.outcome for drained in await one.drain()] == ["held"]
    assert [file.state for file in two.files] == ["held"]


async def test_a_writer_that_never_read_is_spooled_too(process: OpenProcess) -> None:
    one, two = process(), process()
    one.store.freeze()
    call = one.call(room_sid="RM_1", caller="anna")
    call.start()
    call.record_turn("user", "can you hear me")
    call.record_userdata({"step": 1})
    await until(lambda: call.spooled == 2)
    await call.aclose("handover")
    await one.spool.aclose()
    (drained,) = await two.drain()
    assert drained.outcome == "drained", drained
    assert await two.said() == ["can you hear me"]
    goes_on = two.call(room_sid="RM_1", caller="anna")
    async with goes_on:
        assert not goes_on.briefing.fresh
        assert goes_on.briefing.userdata == {"step": 1}


async def test_superseded_userdata_makes_room_and_turns_are_never_dropped(
    process: OpenProcess,
) -> None:
    one = process(outbox_records=10)
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "in flight")
    await until(lambda: call.spooled == 1)
    for number in range(8):
        call.record_userdata({"step": number})
    call.update_working_state(goal="a", focus="x")
    call.update_working_state(goal="b")
    call.update_working_state(focus="y")
    call.record_turn("user", "there was room")
    assert call.refused == 0
    one.store.thaw()
    assert await call.flush(5)
    fold = await one.engine._chain(CALL).refresh()
    assert [turn.content for turn in fold.turns] == ["in flight", "there was room"]
    assert fold.userdata == {"step": 7}
    assert fold.working_state is not None
    assert (fold.working_state.goal, fold.working_state.focus) == ("b", "y")
    assert fold.dropped.get("userdata", 0) >= 1
    assert call._outbox.made_room == sum(fold.dropped.values())
    assert call._outbox._size == 0
    assert call._outbox._markers == 0


async def test_a_disk_that_cannot_be_written_is_said_once_and_the_call_goes_on(
    process: OpenProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = process()
    call = await held(one.call())
    one.directory.write_text("not a directory")
    one.store.freeze()
    with caplog.at_level(logging.ERROR):
        for text in "abc":
            call.record_turn("user", text)
            await anyio.sleep(0.1)
    assert caplog.text.count("cannot be spooled") == 1
    assert (call.lag, call.spooled) == (3, 0)
    one.directory.unlink()
    await until(lambda: call.spooled == 3)
    one.store.thaw()
    assert await call.flush(5)
    assert await one.said() == ["a", "b", "c"]


async def test_a_file_that_somebody_deletes_is_written_anew(process: OpenProcess) -> None:
    one = process()
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "a")
    await until(lambda: call.spooled == 1)
    (path,) = one.directory.iterdir()
    path.unlink()
    call.record_turn("user", "b")
    await until(lambda: path.exists() and call.spooled == 2)
    assert texts(one) == ["a", "b"]


@pytest.mark.parametrize("bound", ["spool_call_bytes", "spool_bytes"])
async def test_a_bound_of_the_disk_leaves_the_rest_in_memory(
    process: OpenProcess, bound: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {bound: 20_000}
    one = process(**settings)
    call = await held(one.call())
    one.store.freeze()
    with caplog.at_level(logging.ERROR):
        for number in range(30):
            call.record_turn("user", f"{number} " + "x" * 1000)
            await anyio.sleep(0.02)
    assert bound in caplog.text
    (path,) = one.directory.iterdir()
    assert path.stat().st_size <= 20_000
    assert 5 < call.spooled < 20
    assert (call.lag, call.refused) == (30, 0)
    one.store.thaw()
    assert await call.flush(5)
    assert [said.split()[0] for said in await one.said()] == [str(n) for n in range(30)]


@pytest.mark.parametrize("bound", ["spool_call_bytes", "spool_bytes"])
async def test_a_full_file_is_written_anew_without_what_is_void(
    process: OpenProcess, bound: str
) -> None:
    settings: dict[str, Any] = {bound: 20_000}
    one = process(**settings)
    call = await held(one.call())
    one.store.freeze()
    call.record_turn("user", "first")
    await until(lambda: call.spooled == 1)
    for number in range(100):
        call.record_userdata({"step": number, "form": "x" * 1000})
        if number % 5 == 0:
            await anyio.sleep(0.01)
    call.record_turn("user", "last")
    await until(lambda: call.spooled == call.lag)
    (path,) = one.directory.iterdir()
    assert path.stat().st_size <= 20_000
    assert texts(one)[-1] == "last"


async def test_a_closed_spool_lets_a_call_begin_all_the_same(process: OpenProcess) -> None:
    one = process()
    await one.spool.aclose()
    call = await held(one.call())
    call.record_turn("user", "a")
    assert await call.flush(2)


async def test_a_spool_closed_before_its_calls_is_told_and_harms_nobody(
    process: OpenProcess, caplog: pytest.LogCaptureFixture
) -> None:
    one = process()
    call = await held(one.call())
    await one.spool.aclose()
    one.store.freeze()
    with caplog.at_level(logging.ERROR):
        call.record_turn("user", "a")
        await until(lambda: "cannot be spooled" in caplog.text)
        assert call.state is CallState.HOLDING
        one.store.thaw()
        assert await call.flush(5)
        await call.aclose()
    assert "ended early" not in caplog.text
    assert await one.said() == ["a"]


async def test_twenty_thousand_records(process: OpenProcess) -> None:
    one = process()
    call = await held(one.call())
    one.store.freeze()
    longest, last = 0.0, time.perf_counter()

    async def ticks() -> None:
        nonlocal longest, last
        while True:
            await checkpoint()
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    for number in range(20_000):
        call.record_turn("user", f"{number} and some words that were said")
    began = last = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticks)
        await until(lambda: call.spooled == 20_000, 20)
        tasks.cancel_scope.cancel()
    took = time.perf_counter() - began
    (path,) = one.directory.iterdir()
    print(
        f"20,000 records, {path.stat().st_size >> 10} KiB, spooled in {took:.2f} s; "
        f"the loop stood still for {1000 * longest:.0f} ms at most"
    )
    assert longest < 0.25
    one.store.thaw()
    assert await call.flush(60)
    assert [text.split()[0] for text in await one.said()] == [str(n) for n in range(20_000)]
