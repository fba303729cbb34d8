"""Real processes on one spool: killed, racing each other, and on a disk that takes no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ..call.test_call import until
from .conftest import OpenProcess
from .planted import plant, turns

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


class Other:
    """A process of `tests.spool.worker`, and what it told last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: dict[str, Any] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            with suppress(ValueError):  # the line that it was killed in
                self.told |= json.loads(line)

    async def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), 30)
        await asyncio.wait_for(self._reading, 10)
        return code


@asynccontextmanager
async def other(what: str, directory: Path) -> AsyncIterator[Other]:
    one = Other(
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.spool.worker", what, str(directory)),
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
    )
    try:
        yield one
    finally:
        await one.kill()


async def test_what_a_killed_worker_spooled_is_stored_by_another(
    process: OpenProcess, tmp_path: Path
) -> None:
    async with other("spool", tmp_path) as dying:
        await until(lambda: dying.told.get("spooled", 0) >= 40, 20)
        await dying.kill()
        durable = dying.told["spooled"]
    one = process()
    (file,) = one.files
    assert file.state == "waits", "the system freed its lock"
    assert file.records >= durable
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    said = await one.said()
    assert said == ["stored", *(f"spooled {number}" for number in range(len(said) - 1))]
    assert len(said) - 1 >= durable, "what was durable on this machine is there"


async def test_a_forked_child_keeps_nothing_of_a_killed_parents(
    process: OpenProcess, tmp_path: Path
) -> None:
    async with other("fork", tmp_path) as dying:
        await until(lambda: "child" in dying.told and dying.told.get("spooled", 0) >= 5, 20)
        os.kill(dying.process.pid, signal.SIGKILL)
        try:
            await dying.process.wait()
            (file,) = process().files
            assert file.state == "waits", "the child has the parent's file"
        finally:
            os.kill(dying.told["child"], signal.SIGKILL)


async def test_the_next_worker_of_a_killed_ones_room_is_told_all_of_it(
    process: OpenProcess, tmp_path: Path
) -> None:
    async with other("spool", tmp_path) as dying:
        await until(lambda: dying.told.get("spooled", 0) >= 10, 20)
        await dying.kill()
        durable = dying.told["spooled"]
    call = process().call(room_sid="RM_1", caller="anna")
    async with call:
        heard = [turn.content for turn in call.briefing.turns]
    assert f"spooled {durable - 1}" in heard
    assert not any(turn.late for turn in call.briefing.turns), "nobody was in between"


async def test_two_drainers_at_once(process: OpenProcess, tmp_path: Path) -> None:
    one = process()
    files = 30
    for number in range(files):
        texts = [f"{number}.{n}" for n in range(20)]
        plant(one, f"w{number}", turns(*texts), call_id=f"call {number}")
    async with other("drain", tmp_path) as first, other("drain", tmp_path) as second:
        await until(lambda: "ready" in first.told and "ready" in second.told, 20)
        for each in (first, second):
            assert each.process.stdin is not None
            each.process.stdin.write(b"\n")
        assert await first.ended() == 0
        assert await second.ended() == 0
    drained = [outcome for each in (first, second) for outcome in each.told["outcomes"]]
    assert [outcome for outcome in drained if outcome[0] == "drained"] == [["drained", 20]] * files
    for number in range(files):
        said = await one.said(f"call {number}")
        assert said == [f"{number}.{n}" for n in range(20)]
    assert one.files == []


async def test_a_disk_that_is_full_for_a_while_costs_nothing(tmp_path: Path) -> None:
    async with other("full", tmp_path) as one:
        assert await one.ended() == 0
    assert one.told["said"] == [str(number) for number in range(40)]


async def test_a_directory_that_cannot_be_written(process: OpenProcess) -> None:
    one = process()
    if os.geteuid() == 0:  # root writes everywhere but there
        one.spool._disk._directory = Path("/proc/recall")  # type: ignore[attr-defined]
    else:
        one.directory.mkdir(0o500)
    call = one.call()
    call.start()
    assert await call.holding(2)
    one.store.freeze()
    call.record_turn("user", "a")
    await until(lambda: call._spooler is not None and call._spooler._trouble is not None)
    assert (call.lag, call.spooled) == (1, 0)
    one.store.thaw()
    assert await call.flush(5)
    assert await one.said() == ["a"]


async def test_a_drainer_whose_disk_is_full_still_drains(process: OpenProcess) -> None:
    """What is full takes no new facts, and gives up its files all the same."""
    one = process(spool_bytes=1)
    plant(one, "dead", turns("a"), sid="RM_1")
    (drained,) = await one.drain()
    assert drained.outcome == "drained"
    assert await one.said() == ["a"]
