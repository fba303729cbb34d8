"""Bad days of a worker: each is survived or told clearly, loses nothing that was acknowledged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from recall_livekit import (
    CallState,
    InvalidRecord,
    Recall,
    Settings,
    StoreUnavailable,
    StoreUnusable,
)
from recall_livekit.engine.entries import RunEntry, dump_entry
from recall_livekit.stores.keys import call_key
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.clock import FakeClock

from ..call.test_call import until
from ..conftest import OpenRecall, engine_of

pytestmark = pytest.mark.anyio
CALL = "a call"

FULL_DISK = """
import asyncio, logging, resource, sys
from recall_livekit import Recall, Settings

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    settings = Settings(retry_first=0.01, retry_last=0.05, retained_chars=10_000_000)
    async with Recall.open(f"sqlite:///{sys.argv[1]}", settings=settings) as recall:
        async with recall.resume("a call") as call:
            limit(300_000)
            for number in range(60):
                call.record_turn("user", f"{number} " + "x" * 10_000)
                await call.flush(0.05)
            assert call.lag > 0, "the disk was not full"
            assert call.state.value == "holding"
            acked = 60 - call.lag
            limit(resource.RLIM_INFINITY)
            assert await call.flush(10)
        turns = await recall.turns("a call")
        assert [int(t.content.split()[0]) for t in turns] == list(range(60))
        print("acked before it was full:", acked)

asyncio.run(main())
"""

FORK = """
import asyncio, os, sys
from recall_livekit import Recall

async def use(recall, text):
    async with recall.resume(text) as call:
        call.record_turn("user", text)
        assert await call.flush(5)
    assert [t.content for t in await recall.turns(text)] == [text]

recall = Recall.open(f"sqlite:///{sys.argv[1]}")
asyncio.run(use(recall, "before the fork"))
if (child := os.fork()) == 0:
    asyncio.run(use(recall, "in the child"))
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
asyncio.run(use(recall, "in the parent"))
print("forked")
"""


def run(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_disk_that_fills_up_in_mid_call_loses_nothing(tmp_path: Path) -> None:
    told = run(FULL_DISK, tmp_path / "records")
    assert "the call goes on" in told or "acked before" in told


def test_a_handle_goes_on_in_both_after_a_fork(tmp_path: Path) -> None:
    assert "forked" in run(FORK, tmp_path / "records")


@pytest.mark.parametrize("kind", ["a file", "a foreign database", "junk", "read-only"])
async def test_a_directory_that_cannot_be_used_is_told_clearly(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "records"
    if kind == "a file":
        directory.write_text("not a directory")
    elif kind == "read-only":
        if os.geteuid() == 0:
            directory = Path("/proc/recall")  # root writes everywhere but there
        else:
            os.chmod(tmp_path, 0o500)  # noqa: PTH101
    else:
        file = directory / "calls" / f"{call_key(CALL)}.db"
        file.parent.mkdir(parents=True)
        foreign = b"SQLite format 3\x00" + bytes(4080)
        file.write_bytes(foreign if kind == "a foreign database" else os.urandom(5000))
    recall = Recall(SqliteStore(directory), settings=Settings(open_wait=0.3, flush_wait=0.1))
    with anyio.fail_after(5), pytest.raises((StoreUnusable, StoreUnavailable)) as told:
        async with recall.resume(CALL):
            raise AssertionError("it cannot be used")
    assert str(directory) in str(told.value)
    await recall.aclose()


async def test_a_newer_record_is_skipped_counted_and_not_covered_by_a_snapshot(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall(snapshot_entries=4)
    async with recall.resume(CALL) as call:
        call.record_turn("user", "known")
        await call.flush(1)
    store = engine_of(recall).store
    fold = await engine_of(recall)._chain(CALL).refresh()
    newer = (
        b'{"v":1,"kind":"records","epoch":%d,"at":1,"writer":"newer","first":1,"records":['
        b'{"v":2,"kind":"turn","at":1,"hologram":"..."}],"provisional_run":1}' % fold.epoch
    )
    await store.append(CALL, fold.position, newer)
    old = open_recall(snapshot_entries=4)
    async with old.resume(CALL) as call:
        assert call.briefing.unreadable == 1
        assert [turn.content for turn in call.briefing.turns] == ["known"]
        for number in range(12):
            call.record_turn("user", str(number))
            await call.flush(1)
    assert engine_of(old)._chain(CALL).snapshot_position == 0


async def test_a_newer_kind_of_entry_fences_an_older_worker(open_recall: OpenRecall) -> None:
    recall = open_recall()
    async with recall.resume(CALL, if_lease_lost="leave") as call:
        call.record_turn("user", "mine")
        await call.flush(1)
        fold = await engine_of(recall)._chain(CALL).refresh()
        newer = b'{"v":2,"kind":"shared lease","epoch":%d,"at":1}' % (fold.epoch + 1)
        await engine_of(recall).store.append(CALL, fold.position, newer)
        call._keeper.check_now()
        await until(lambda: call.state is CallState.READ_ONLY)


async def test_two_versions_of_the_package_share_a_directory(open_recall: OpenRecall) -> None:
    """A newer one adds fields to what an older one knows: they are ignored, never an error."""
    recall = open_recall()
    run_entry = RunEntry(epoch=0, at=1.0, writer="newer", run=1)
    data = dump_entry(run_entry)[:-1] + b',"colour":"blue"}'
    await engine_of(recall).store.append(CALL, 0, data)
    async with recall.resume(CALL) as call:
        assert call._keeper.run_number == 1
        call.record_turn("user", "read by both")
        assert await call.flush(1)


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_a_workers_clock_that_jumps_an_hour_keeps_its_call(
    tmp_path: Path, jump: float
) -> None:
    clock = FakeClock()
    recall = Recall(SqliteStore(tmp_path), clock=clock, settings=Settings())
    call = recall.resume(CALL)
    call.start()
    assert await call.holding(2)
    clock.skew += jump
    other = Recall(SqliteStore(tmp_path), clock=FakeClock(), settings=Settings())
    for _ in range(3):
        call._keeper.check_now()
        clock.advance(1.0)
        await anyio.sleep(0.02)
        reading = await engine_of(other).read(CALL)
        assert reading.liveness.value == "live"
    assert call.state is CallState.HOLDING
    call.record_turn("user", "still mine")
    assert await call.flush(2)
    await call.aclose()
    await other.aclose()
    await recall.aclose()


async def test_two_thousand_calls_in_one_directory(tmp_path: Path) -> None:
    """The next call's cost does not depend on how many others there are."""
    recall = Recall(SqliteStore(tmp_path))
    entry = dump_entry(RunEntry(epoch=0, at=1.0, writer="w", run=1))
    for number in range(2000):
        await engine_of(recall).store.append(f"call {number}", 0, entry)
    async with Recall(SqliteStore(tmp_path)) as other:
        with anyio.fail_after(5):
            async with other.resume("one more") as call:
                call.record_turn("user", "hello")
                assert await call.flush(1)
        listed = [call_id async for call_id in other.calls()]
    assert len(listed) == 2001
    await recall.aclose()


async def test_a_listener_that_raises_does_not_take_the_call_down(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    call = open_recall().resume(CALL)

    def bad(state: CallState) -> None:
        raise RuntimeError(f"the application's own fault at {state}")

    call.subscribe(bad)
    with caplog.at_level(logging.ERROR):
        async with call:
            call.record_turn("user", "hello")
            assert await call.flush(2)
    assert "listener" in caplog.text


@pytest.mark.parametrize("data", [float("nan"), {1: 2}, ["x"] * 200_000, {"a": {"b": [None]}}])
async def test_absurd_userdata_is_kept_or_refused_and_never_worse(
    open_recall: OpenRecall, data: Any
) -> None:
    async with open_recall().resume(CALL) as call:
        with suppress(InvalidRecord):
            call.record_userdata(data)
        call.record_turn("user", "after it")
        assert await call.flush(2)
    assert (await open_recall().turns(CALL))[-1].content == "after it"
