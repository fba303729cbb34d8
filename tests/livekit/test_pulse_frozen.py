"""An agent whose process is frozen in mid-sentence, judged, and woken: what is heard of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from recall_livekit import Recall, Settings
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.leash import eventually, leashed

from .speaking import TTL
from .test_agent import ROOM

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
PULSE = Settings().pulse_interval


class Speaking:
    """The process, by what it says."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._pid = 0

    @property
    def lines(self) -> list[list[str]]:
        """What it said so far, without the line that it is about to."""
        *whole, _ = self._log.read_text().split("\n")
        return [line.split() for line in whole]

    async def holds(self) -> None:
        self._pid = int((await self.says("holds"))[1])

    def send(self, number: signal.Signals) -> float:
        os.kill(self._pid, number)
        return time.monotonic()

    async def says(self, word: str, within: float = 20.0) -> list[str]:
        async def said() -> list[str] | None:
            return next((line for line in self.lines if line[:1] == [word]), None)

        return await eventually(said, within=within)

    def frames(self, after: float) -> list[float]:
        times = (float(line[1]) for line in self.lines if line[:1] == ["frame"])
        return [at for at in times if at > after]


@asynccontextmanager
async def speaking(directory: Path) -> AsyncIterator[Speaking]:
    log = directory / "speaking.log"
    command = (sys.executable, "-m", "tests.livekit.speaking", str(directory / "records"))
    async with leashed(*command, log=log, cwd=ROOT):
        child = Speaking(log)
        await child.holds()
        await child.says("frame")
        yield child


@pytest.mark.parametrize("taken", [True, False], ids=["taken", "only judged"])
async def test_a_frozen_agent_that_was_judged_is_silent_when_it_wakes_and_leaves(
    tmp_path: Path, taken: bool
) -> None:
    async with (
        speaking(tmp_path) as agent,
        Recall(SqliteStore(tmp_path / "records"), settings=Settings(lease_ttl=TTL)) as watcher,
    ):
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
        agent.send(signal.SIGSTOP)
        await anyio.sleep(1.2)
        woken = agent.send(signal.SIGCONT)
        await anyio.sleep(1.0)
        assert len(agent.frames(after=woken + 0.3)) > 10, "the sentence goes on"
        assert not any(line[:1] == ["lost"] for line in agent.lines)
