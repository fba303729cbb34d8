"""An agent whose process is frozen in mid-sentence, judged, and woken: what is heard of it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from recall_livekit import Recall, Settings
from recall_livekit.stores.sqlite import SqliteStore

from .speaking import TTL
from .test_agent import ROOM

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
PULSE = Settings().pulse_interval


class Speaking:
    """The process, and what it said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[list[str]] = []

    async def read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().split())

    def send(self, number: signal.Signals) -> float:
        os.kill(self._process.pid, number)
        return time.monotonic()

    async def says(self, word: str, within: float = 20.0) -> list[str]:
        with anyio.fail_after(within):
            while True:
                found = next((line for line in self.lines if line[0] == word), None)
                if found is not None:
                    return found
                await anyio.sleep(0.01)

    def frames(self, after: float) -> list[float]:
        times = (float(line[1]) for line in self.lines if line[0] == "frame")
        return [at for at in times if at > after]


@asynccontextmanager
async def speaking(directory: Path) -> AsyncIterator[Speaking]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.livekit.speaking", str(directory)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    child = Speaking(process)
    reading = asyncio.create_task(child.read())
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await reading


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "only judged"])
async def test_a_frozen_agent_that_was_judged_is_silent_when_it_wakes_and_leaves(
    tmp_path: Path, taken: bool
) -> None:
    async with (
        speaking(tmp_path) as agent,
        Recall(SqliteStore(tmp_path), settings=Settings(lease_ttl=TTL)) as watcher,
    ):
        await agent.says("holds")
        await agent.says("frame")
        await anyio.sleep(0.5)
        agent.send(signal.SIGSTOP)
        await anyio.sleep(0.8)
        assert await watcher.break_lease(ROOM, 1)
        if taken:
            async with watcher.resume(ROOM):
                await wakes(agent)
        else:
            await wakes(agent)
            reading = await watcher._transport.read(ROOM)
            assert (reading.holder, reading.epoch) == (None, 2), "it took the call again"


async def wakes(agent: Speaking) -> None:
    woken = agent.send(signal.SIGCONT)
    lost = await agent.says("lost", 5)
    await agent.says("ended", 5)
    assert lost[1] == "frozen"
    heard = agent.frames(after=woken)
    silent = float((await agent.says("silent"))[1]) - woken
    print(f"silent {1000 * silent:.0f} ms after waking, with {20 * len(heard)} ms of sound let out")
    assert silent < PULSE + 0.2, "on a busy machine"
    assert len(heard) <= 3


async def test_a_frozen_agent_that_was_not_judged_goes_on_when_it_wakes(tmp_path: Path) -> None:
    async with speaking(tmp_path) as agent:
        await agent.says("holds")
        await agent.says("frame")
        agent.send(signal.SIGSTOP)
        await anyio.sleep(1.2)
        woken = agent.send(signal.SIGCONT)
        await anyio.sleep(1.0)
        assert len(agent.frames(after=woken + 0.3)) > 10, "the sentence goes on"
        assert not any(line[0] == "lost" for line in agent.lines)
