"""Real processes, killed at random: what was acknowledged is there, once, and in order."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from recall_livekit import Recall, Settings

from .nursery import run
from .report import say

pytestmark = pytest.mark.anyio
CALL = "killed call"
RATE = 10.0
ROOT = Path(__file__).parents[2]


class Writer:
    """A process of `tests.crash.writer`, and what it has told so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.acked: list[str] = []
        self.held_at: float | None = None
        self.holds = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            with suppress(ValueError):  # the line that it was killed in
                told = json.loads(line)
                if "held" in told:
                    self.held_at = time.monotonic()
                    self.holds.set()
                if "acked" in told:
                    self.acked.append(told["acked"])

    async def kill(self) -> list[str]:
        """Kill it, and return all that it was told was durable."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        await asyncio.wait_for(self._reading, 10)
        return self.acked


@asynccontextmanager
async def writer(directory: Path, rate: float = RATE) -> AsyncIterator[Writer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.crash.writer", str(directory), CALL, str(rate)),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    one = Writer(process)
    try:
        yield one
    finally:
        await one.kill()


async def recorded(directory: Path) -> list[str]:
    settings = Settings(retained_chars=10_000_000)
    async with Recall.open(f"sqlite:///{directory}", settings=settings) as recall:
        return [turn.content for turn in await recall.turns(CALL)]


def assert_whole(found: list[str], acked: list[str]) -> None:
    """Every acknowledged record once, in its order; at most one more of each killed writer."""
    assert len(found) == len(set(found)), "a record is there twice"
    assert [text for text in found if text in set(acked)] == acked, "one is lost or out of order"


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_at_random_at_ten_records_a_second(tmp_path: Path, seed: int) -> None:
    """Each next worker is waiting already; it takes over and goes on in the same order."""
    chance = random.Random(seed)
    acked: list[str] = []
    takeovers: list[float] = []
    async with asyncio.timeout(100):
        await run_killed(tmp_path, chance, kills=6, acked=acked, takeovers=takeovers)
    found = await recorded(tmp_path)
    assert_whole(found, acked)
    assert len(acked) > 12
    print(f"takeover after SIGKILL: worst {1000 * max(takeovers):.0f} ms of {len(takeovers)}")


async def run_killed(
    directory: Path,
    chance: random.Random,
    *,
    kills: int,
    acked: list[str],
    takeovers: list[float],
) -> None:
    async with AsyncExitStack() as stack:
        current = await stack.enter_async_context(writer(directory))
        await asyncio.wait_for(current.holds.wait(), 20)
        for _ in range(kills):
            waiting = await stack.enter_async_context(writer(directory))
            await asyncio.sleep(chance.uniform(0.6, 1.6))
            acked += await current.kill()
            killed = time.monotonic()
            await asyncio.wait_for(waiting.holds.wait(), 20)
            assert waiting.held_at is not None
            takeovers.append(waiting.held_at - killed)
            current = waiting
        await asyncio.sleep(0.5)
        acked += await current.kill()


async def test_killed_before_it_waits_or_while_it_takes_over(tmp_path: Path) -> None:
    """The second worker dies too, at any moment of its start; the third one gets it all."""
    chance = random.Random(3)
    acked: list[str] = []
    async with asyncio.timeout(100):
        for _ in range(5):
            async with writer(tmp_path, rate=100) as one:
                await asyncio.wait_for(one.holds.wait(), 20)
                await asyncio.sleep(chance.uniform(0.0, 0.3))
                async with writer(tmp_path, rate=100) as two:
                    await asyncio.sleep(chance.uniform(0.2, 0.9))
                    acked += await one.kill()
                    await asyncio.sleep(chance.uniform(0.0, 0.05))
                    acked += await two.kill()
    assert_whole(await recorded(tmp_path), acked)


KILLS = 1040
RATES = (10, 10, 50, 1000)
"""Records a second of each call that is hunted, all of them at the same time."""


@pytest.mark.parametrize("kills", [24, pytest.param(KILLS, marks=pytest.mark.long)])
def test_killed_at_random_with_a_standby_waiting(tmp_path: Path, kills: int) -> None:
    """The holder, its standby or both; at ten records a second and faster; one directory."""

    def hunt(seed: int) -> dict[str, Any]:
        rate, share = RATES[seed], kills // len(RATES)
        return run("hunt", tmp_path, f"call {seed}", seed, share, rate, seconds=100 + kills)

    with ThreadPoolExecutor(len(RATES)) as pool:
        hunted = list(pool.map(hunt, range(len(RATES))))
    total = {key: sum(one[key] for one in hunted) for key in ("kills", "acked")}
    worst = max(one["worst_ms"] for one in hunted)
    say("killed at random", total | {"worst_ms": worst})
    assert total["kills"] >= kills


async def test_a_frozen_holder_is_followed_after_its_ttl(tmp_path: Path) -> None:
    """Its lock is still held, so only silence counts; once woken, it cannot write."""
    settings = Settings(lease_ttl=2.0)
    async with asyncio.timeout(60), writer(tmp_path) as frozen:
        await frozen.holds.wait()
        await asyncio.sleep(0.5)
        frozen.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        async with (
            Recall.open(f"sqlite:///{tmp_path}", settings=settings) as recall,
            recall.resume(CALL) as call,
        ):
            waited = time.monotonic() - stopped
            print(f"followed {waited:.2f} s after SIGSTOP")
            assert 4.0 < waited < 9.0, "the frozen writer's own TTL is 6 s"
            call.record_turn("user", "after the takeover")
            assert await call.flush(5)
            frozen.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.5)
            acked = await frozen.kill()
    found = await recorded(tmp_path)
    assert_whole([text for text in found if text != "after the takeover"], acked)
    assert found.count("after the takeover") == 1
    after = len(found) - found.index("after the takeover") - 1
    assert after <= 1, "only what it had queued when it froze comes in, as a late record"
