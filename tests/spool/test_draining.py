"""What a dead worker left on the disk: stored under its own numbers, and never where it may not."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from recall_livekit import Recall
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.errors import StoreUnavailable
from recall_livekit.models import Turn, Userdata, WorkingStateUpdate
from recall_livekit.spool.directory import _Directory
from recall_livekit.spool.format import Facts, LostTenure, record_line
from recall_livekit.spool.spool import Spool

from ..call.test_call import until
from .conftest import CALL, OpenProcess, Process
from .planted import NOW, plant, turns

pytestmark = pytest.mark.anyio


def origin(sid: str | None = None, caller: str | None = None) -> Origin:
    return Origin(room_sid=sid, caller=caller)


async def acquired(
    process: Process, writer: str, sid: str | None = None, caller: str | None = None
) -> tuple[int, int]:
    """Take the call as `writer`; return the run and the epoch."""
    reading = await process.engine.read(CALL, origin(sid, caller))
    request = Acquire(
        writer=writer,
        attempt=f"{writer}-{reading.position}",
        ttl=6.0,
        origin=origin(sid, caller),
        read_position=reading.position,
        steal=True,
    )
    grant = await process.engine.acquire(CALL, request)
    return grant.run, grant.epoch


# --- under the epoch, or late -------------------------------------------------------------------


async def test_it_is_stored_under_the_epoch_while_that_is_the_writers(process: OpenProcess) -> None:
    one = process()
    run, epoch = await acquired(one, "dead")
    await one.engine.append(CALL, "dead", 1, turns("a"), epoch)
    facts = Facts(run=run, epoch=epoch, holding=True, acknowledged=1)
    path = plant(one, "dead", [*turns("a", "b"), Userdata(at=NOW, data="c")], facts)
    (drained,) = await one.drain()
    assert (drained.outcome, drained.records) == ("drained", 2)
    assert not path.exists()
    fold = await one.engine._chain(CALL).refresh()
    assert [(turn.content, turn.late) for turn in fold.turns] == [("a", False), ("b", False)]
    assert fold.userdata == "c"


async def test_it_is_late_once_another_had_the_call(process: OpenProcess) -> None:
    one = process()
    run, epoch = await acquired(one, "dead")
    _, following = await acquired(one, "next")
    update = WorkingStateUpdate(at=NOW, changes={"goal": "the new one's"})
    await one.engine.append(CALL, "next", 1, [*turns("I go on"), update], following)
    old = WorkingStateUpdate(at=NOW, changes={"goal": "the dead one's"})
    plant(one, "dead", [*turns("I was"), old], Facts(run=run, epoch=epoch, holding=True))
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    briefing = (await one.engine.read(CALL)).briefing
    assert [(turn.content, turn.late) for turn in briefing.turns] == [
        ("I go on", False),
        ("I was", True),
    ]
    assert "(late)] I was" in briefing.text
    assert briefing.working_state is not None
    assert briefing.working_state.goal == "the new one's"


async def test_each_lost_tenure_keeps_its_own_run_and_epoch(process: OpenProcess) -> None:
    one = process()
    run, first = await acquired(one, "dead")
    await acquired(one, "between")
    _, third = await acquired(one, "dead")
    lost = LostTenure(number=2, run=run, epoch=first)
    facts = Facts(run=run, epoch=third, holding=True, lost=(lost,))
    plant(one, "dead", turns("lost 1", "lost 2", "mine"), facts)
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    fold = await one.engine._chain(CALL).refresh()
    assert [(turn.content, turn.late) for turn in fold.turns] == [
        ("lost 1", True),
        ("lost 2", True),
        ("mine", False),
    ]


@pytest.mark.parametrize("batch", [1, 2, 256])
async def test_what_was_stored_before_is_skipped(process: OpenProcess, batch: int) -> None:
    one = process(batch_records=batch)
    run, epoch = await acquired(one, "dead")
    await one.engine.append(CALL, "dead", 1, turns("a", "b", "c"), epoch)
    plant(one, "dead", turns("a", "b", "c", "d"), Facts(run=run, epoch=epoch, holding=True))
    (drained,) = await one.drain()
    assert (drained.outcome, drained.records) == ("drained", 4)
    assert await one.said() == ["a", "b", "c", "d"]


async def test_a_gap_is_never_filled_with_guesses(process: OpenProcess) -> None:
    """The store was set back to before what the writer was told is stored."""
    one = process()
    run, epoch = await acquired(one, "dead")
    facts = Facts(run=run, epoch=epoch, holding=True, acknowledged=4)
    path = plant(one, "dead", turns("e", "f"), facts, first=5)
    (drained,) = await one.drain()
    assert drained.outcome == "aside"
    assert "expected record 1" in drained.why
    assert path.with_name(path.name + ".aside").exists()


async def test_its_outcome_is_written_after_its_last_record(process: OpenProcess) -> None:
    one = process(rejoin_window=1.0)
    run, epoch = await acquired(one, "dead")
    closed = {"outcome": "left", "closed_at": time.time() - 2.0}
    facts = Facts.model_validate({"run": run, "epoch": epoch, "holding": True, **closed})
    plant(one, "dead", turns("bye"), facts)
    await one.drain()
    (summary,) = [summary async for summary in one.engine.summaries()]
    assert summary.state == "ended", "the window to come back is over"


async def test_a_writer_that_was_fenced_closes_nothing(process: OpenProcess) -> None:
    one = process()
    run, epoch = await acquired(one, "dead")
    await acquired(one, "next")
    facts = Facts(run=run, epoch=epoch, holding=True, outcome="ended", closed_at=NOW)
    plant(one, "dead", turns("bye"), facts)
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    fold = await one.engine._chain(CALL).refresh()
    assert fold.lease is not None
    assert fold.lease.writer == "next"


# --- erasure, and no run known ------------------------------------------------------------------


async def test_the_file_of_an_erased_call_is_deleted(process: OpenProcess) -> None:
    one = process()
    run, epoch = await acquired(one, "dead", sid="RM_1")
    path = plant(one, "dead", turns("x"), Facts(run=run, epoch=epoch, holding=True), sid="RM_1")
    await one.engine.erase(CALL)
    (drained,) = await one.drain()
    assert drained.outcome == "erased"
    assert not path.exists()
    assert await one.said() == []


@pytest.mark.parametrize(
    ("sid", "outcome"),
    [("RM_1", "erased"), ("RM_2", "drained"), ("RM_3", "aside"), (None, "aside")],
)
async def test_after_an_erasure_only_a_room_that_the_chain_names_is_believed(
    process: OpenProcess, sid: str | None, outcome: str
) -> None:
    one = process()
    _, epoch = await acquired(one, "first", sid="RM_1")
    await one.engine.append(CALL, "first", 1, turns("erased"), epoch)
    await one.engine.erase(CALL)
    await acquired(one, "second", sid="RM_2")
    path = plant(one, "dead", turns("said when?"), sid=sid)
    (drained,) = await one.drain()
    assert drained.outcome == outcome
    assert path.exists() is False
    assert path.with_name(path.name + ".aside").exists() is (outcome == "aside")
    assert await one.said() == (["said when?"] if outcome == "drained" else [])


async def test_a_spool_opens_the_run_that_nobody_could_open(process: OpenProcess) -> None:
    one = process()
    plant(one, "dead", turns("hello", at=time.time() - 5), sid="RM_1", caller="anna")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    reading = await one.engine.read(CALL, origin("RM_1", "anna"))
    assert [turn.content for turn in reading.briefing.turns] == ["hello"]


async def test_its_age_counts_from_when_it_was_said(process: OpenProcess) -> None:
    one = process(resume_window=60.0)
    plant(one, "dead", turns("yesterday", at=time.time() - 3600), sid="RM_1")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    assert (await one.engine.read(CALL, origin("RM_1"))).briefing.fresh


async def test_old_words_do_not_take_a_live_call_from_its_holder(process: OpenProcess) -> None:
    one = process()
    plant(one, "dead", turns("an hour ago", at=time.time() - 3600), sid="RM_1", caller="anna")
    _, epoch = await acquired(one, "living", sid="RM_2", caller="bert")
    (drained,) = await one.drain()
    assert drained.outcome == "aside"
    await one.engine.append(CALL, "living", 1, turns("still here"), epoch)
    assert await one.said() == ["still here"]


async def test_newer_words_wait_until_the_live_call_is_over(process: OpenProcess) -> None:
    one = process()
    _, epoch = await acquired(one, "living", sid="RM_2", caller="bert")
    path = plant(one, "dead", turns("another room"), sid="RM_1", caller="anna")
    (drained,) = await one.drain()
    assert drained.outcome == "waits"
    await one.engine.append(CALL, "living", 1, turns("still here"), epoch)
    await one.engine.release(CALL, "living", epoch, "ended")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    assert await one.said() == ["another room"]
    assert not path.exists()


@pytest.mark.parametrize("when", ["before it ended", "after it ended"])
async def test_words_of_a_room_whose_run_is_over(process: OpenProcess, when: str) -> None:
    one = process()
    _, epoch = await acquired(one, "first", sid="RM_1")
    await one.engine.release(CALL, "first", epoch, "ended")
    at = time.time() + (5 if when == "after it ended" else -5)
    plant(one, "dead", turns("mine", at=at), sid="RM_1")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    fold = await one.engine._chain(CALL).refresh()
    assert fold.run is not None
    assert fold.run.number == (2 if when == "after it ended" else 1)
    assert fold.run_turns == 1


async def test_words_of_an_earlier_room_are_its_history(process: OpenProcess) -> None:
    one = process()
    await acquired(one, "first", sid="RM_1", caller="anna")
    _, epoch = await acquired(one, "second", sid="RM_2", caller="bert")
    plant(one, "dead", turns("of the first"), sid="RM_1", caller="anna")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    await one.engine.append(CALL, "second", 1, turns("of the second"), epoch)
    assert await one.said() == ["of the second"]
    entries = await one.engine.entries(CALL, 0, 99)
    (late,) = [entry for entry in entries if getattr(entry, "writer", "") == "dead"]
    assert getattr(late, "provisional_run", None) == 1


async def test_a_store_that_lost_the_run_is_given_it_again(process: OpenProcess) -> None:
    one = process()
    facts = Facts(run=7, epoch=9, holding=True, read_position=40)
    plant(one, "dead", turns("after a restore"), facts, sid="RM_1")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    assert await one.said() == ["after a restore"]


# --- files that are not what they should be -----------------------------------------------------


def damage(path: Path, what: str) -> None:
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    if what == "torn":
        path.write_bytes(data[:-7])
    elif what == "trailing junk":
        path.write_bytes(data + bytes(4096))
    elif what == "a flipped bit":
        lines[3] = lines[3].replace(b"b", b"B")
        path.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("what", "said", "missing"),
    [
        ("torn", ["a", "b"], 0),
        ("trailing junk", ["a", "b", "c"], 0),
        ("a flipped bit", ["a", "c"], 1),
    ],
)
async def test_damage_costs_only_what_is_damaged(
    process: OpenProcess, what: str, said: list[str], missing: int
) -> None:
    one = process()
    run, epoch = await acquired(one, "dead")
    path = plant(one, "dead", turns("a", "b", "c"), Facts(run=run, epoch=epoch, holding=True))
    damage(path, what)
    (drained,) = await one.drain()
    assert (drained.outcome, drained.missing) == ("drained", missing)
    assert await one.said() == said
    fold = await one.engine._chain(CALL).refresh()
    assert fold.last_number("dead") == len(said) + missing
    assert fold.dropped == ({"?": 1} if missing else {})


@pytest.mark.parametrize("what", ["junk", "empty", "header damaged", "renamed"])
async def test_what_is_no_spool_of_this_place_is_set_aside_and_said_once(
    process: OpenProcess, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = process()
    path = plant(one, "dead", turns("a"))
    if what == "renamed":
        path = path.rename(path.with_name(path.name.replace("dead", "else")))
    elif what == "header damaged":
        path.write_bytes(b"!" + path.read_bytes()[1:])
    else:
        path.write_bytes(os.urandom(3000) if what == "junk" else b"")
    with caplog.at_level(logging.ERROR):
        (drained,) = await one.drain()
        assert drained.outcome == "aside"
        assert await one.drain() == []
    assert caplog.text.count("set aside") == 1
    assert one.spool.aside == 1
    assert [file.state for file in one.files] == ["aside"]
    assert [drained.outcome for drained in await one.drain(aside=True)] == ["aside"]
    assert [file.state for file in one.files] == ["aside"]


async def test_what_cannot_be_set_aside_does_not_end_the_drainer(
    process: OpenProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StoreUnavailable("a disk that cannot be written")

    one = process()
    plant(one, "junk", turns("a")).write_bytes(b"junk")
    monkeypatch.setattr(_Directory, "set_aside", fails)
    (drained,) = await one.drain()
    assert drained.outcome == "waits"
    assert "cannot be written" in drained.why


async def test_a_newer_versions_file_is_left_to_it(process: OpenProcess) -> None:
    one = process()
    path = plant(one, "dead", turns("a"))
    newer = path.read_bytes()
    from zlib import crc32

    lines = newer.splitlines()
    body = lines[0][9:].replace(b'{"v":1', b'{"v":2')
    path.write_bytes(b"\n".join([b"%08x %b" % (crc32(body), body), *lines[1:], b""]))
    assert [drained.outcome for drained in await one.drain()] == ["newer"]
    assert [file.state for file in one.files] == ["newer"]
    assert path.exists()


async def test_a_newer_record_is_left_whole_to_a_newer_version(process: OpenProcess) -> None:
    one = process()
    path = plant(one, "dead", turns("a"))
    from zlib import crc32

    body = b'{"n":2,"record":{"v":2,"kind":"turn","at":1,"hologram":"..."}}'
    path.write_bytes(path.read_bytes() + b"%08x %b\n" % (crc32(body), body))
    assert [drained.outcome for drained in await one.drain()] == ["newer"]
    assert path.exists()


async def test_another_places_files_are_not_touched(process: OpenProcess) -> None:
    one = process()
    elsewhere = Spool.open(
        one.directory,
        address="somewhere else",
        transport=one.engine,
        clock=one.spool.clock,
        settings=one.settings,
    )
    path = plant(one, "dead", turns("a"))
    assert [drained async for drained in elsewhere.drain_all()] == []
    assert path.exists()
    await elsewhere.aclose()


async def test_a_link_is_not_followed(process: OpenProcess, tmp_path: Path) -> None:
    one = process()
    path = plant(one, "dead", turns("a"))
    target = path.rename(tmp_path / "elsewhere")
    path.symlink_to(target)
    assert [drained.outcome for drained in await one.drain()] == ["waits"]
    assert target.exists()
    assert await one.said() == []


# --- who drains ---------------------------------------------------------------------------------


async def test_the_next_worker_reads_what_the_dead_one_spooled(process: OpenProcess) -> None:
    one = process()
    run, epoch = await acquired(one, "dead", sid="RM_1")
    plant(one, "dead", turns("hear me"), Facts(run=run, epoch=epoch, holding=True), sid="RM_1")
    call = one.call(room_sid="RM_1", if_held="steal")
    call.start()
    assert await call.ready(2)
    assert [turn.content for turn in call.briefing.turns] == ["hear me"]
    assert not call.briefing.turns[0].late


async def test_the_caller_does_not_wait_for_a_drain(process: OpenProcess) -> None:
    one = process(drain_wait=0.1)
    one.drains_nothing()
    plant(one, "dead", turns("x"), sid="RM_1")
    stuck = anyio.Event()

    async def slow(*_: object) -> int:
        await stuck.wait()
        raise StoreUnavailable("at last")

    one.engine.open_run = slow  # type: ignore[method-assign, assignment]
    call = one.call(call_id=CALL, room_sid="RM_1")
    call.start()
    with anyio.fail_after(1.0):
        assert await call.ready(1)
    stuck.set()


async def test_the_background_drainer_comes_back_until_all_is_stored(process: OpenProcess) -> None:
    one = process(drain_interval=0.05)
    one.store.freeze()
    path = plant(one, "dead", turns("a"), sid="RM_1")
    one.spool.start()
    one.spool.start()
    await anyio.sleep(0.3)
    assert path.exists()
    one.store.thaw()
    await until(lambda: one.spool.drained == 1)
    assert not path.exists()
    assert await one.said() == ["a"]


async def test_a_fault_of_one_file_does_not_end_the_drainer(
    process: OpenProcess, caplog: pytest.LogCaptureFixture
) -> None:
    one = process()
    append = one.engine.append_provisional

    async def faulty(call: str, writer: str, *rest: object) -> object:
        if writer == "bad":
            raise RuntimeError("a fault of ours")
        return await append(call, writer, *rest)  # type: ignore[arg-type]

    one.engine.append_provisional = faulty  # type: ignore[method-assign, assignment]
    plant(one, "bad", turns("a"))
    plant(one, "good", turns("b"))
    with caplog.at_level(logging.ERROR):
        outcomes = sorted([drained.outcome for drained in await one.drain()])
    assert outcomes == ["drained", "waits"]
    assert "a fault of ours" in caplog.text


async def test_twenty_thousand_records(process: OpenProcess) -> None:
    one = process(batch_records=256)
    run, epoch = await acquired(one, "dead")
    records = turns(*(f"{n} and some words that were said" for n in range(20_000)))
    plant(one, "dead", records, Facts(run=run, epoch=epoch, holding=True))
    longest, last = 0.0, time.perf_counter()

    async def ticks() -> None:
        nonlocal longest, last
        while True:
            await checkpoint()
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticks)
        began = time.perf_counter()
        (drained,) = await one.drain()
        took = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    assert (drained.outcome, drained.records) == ("drained", 20_000)
    assert await one.said() == [record.content for record in records if isinstance(record, Turn)]
    print(
        f"20,000 records in {took:.2f} s; the loop stood still for {1000 * longest:.0f} ms at most"
    )


async def test_the_drained_call_is_one_that_recall_goes_on_with(
    process: OpenProcess, tmp_path: Path
) -> None:
    one = process()
    plant(one, "dead", turns("and then"))
    await one.drain()
    async with Recall.open(f"sqlite:///{tmp_path}/records") as recall:
        assert [turn.content for turn in (await recall.read(CALL)).turns] == ["and then"]


def test_a_line_has_no_newline_inside() -> None:
    line = record_line(1, Turn(at=1.0, role="user", content="one\ntwo\r\n\u2028three"))
    assert line.count(b"\n") == 1
