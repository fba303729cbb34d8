"""How long the caller hears nothing when the agent is lost, in each way that it can be."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, TypeAlias

import psutil

from recall_livekit.rooms.orders import StandbyKind
from recall_livekit.testing.voices import WORD_MS
from recall_livekit.watcher.settings import WatcherSettings

from .cutting import Cut, cut, cutting_stage, moments
from .records import RecordsServer
from .scene import Scene, scene
from .stage import Stage
from .workers import Job, Part

House = Literal["livekit", "recall", "following", "joined", "http", "http_following"]
"""What is on the stage: LiveKit alone; two workers that watch each other; the same with a standby
of this kind; and with the records behind a Recall server."""

Way = Literal["job_kill", "worker_kill", "freeze", "sigterm"]
"""How the agent is lost. Every second killed worker dies with all its jobs."""

STANDBYS: dict[House, StandbyKind] = {
    "following": "following",
    "joined": "joined",
    "http_following": "following",
}
ROUND_S = 90.0
KNOWN_S = WatcherSettings().list_interval + 1.5
Happening: TypeAlias = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process takes: % of a processor, and MB that it shares with nobody."""

    cpu: float
    memory: float


def measure_gaps(house: House, ways: Sequence[Way], rounds: int) -> dict[Way, list[float]]:
    """Silence at the caller's ear in ms, one figure a round; negative where the voices overlap.

    With LiveKit alone the test kills and dispatches again itself, at once: nobody could be sooner.
    Each call is older than a watcher takes to learn of it, where LiveKit sends it no webhooks.
    """
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_gaps(Path(directory), house, ways, rounds))


def measure_silence(bound: float) -> float:
    """How long LiveKit alone leaves the caller of a killed job in silence, in ms; `bound` seconds
    at most are waited for."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_silence(Path(directory), bound))


def measure_cuts(count: int, *, seed: int) -> list[Cut]:
    """What the caller heard twice, or never, of a sentence in which its agent was killed."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_cuts(Path(directory), moments(count, seed=seed)))


def measure_standby(kind: StandbyKind, seconds: float) -> tuple[Cost, Cost]:
    """What a waiting standby costs, and what a warm process that waits for a job does."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_standby(Path(directory), kind, seconds))


@asynccontextmanager
async def _stage(directory: Path, house: House) -> AsyncIterator[Stage]:
    alone = Part(mode="livekit")
    part = alone if house == "livekit" else Part(watcher=True, standby=STANDBYS.get(house))
    async with AsyncExitStack() as stack:
        records = None
        if house in ("http", "http_following"):
            records = (await stack.enter_async_context(RecordsServer(directory))).url
        yield await stack.enter_async_context(Stage(directory, part, part, records=records))


async def _gaps(
    directory: Path, house: House, ways: Sequence[Way], rounds: int
) -> dict[Way, list[float]]:
    kind = "standby" if house in STANDBYS else "room"
    gaps: dict[Way, list[float]] = {way: [] for way in ways}
    async with _stage(directory, house) as stage:
        when = {way: _moments(rounds) for way in ways}
        for number, way in product(range(rounds), ways):
            async with asyncio.timeout(ROUND_S), scene(stage, f"{kind}-{way}-{number}") as here:
                gaps[way].append(await _gap(here, house, way, number, when[way][number]))
    return gaps


def _moments(rounds: int) -> Sequence[float]:
    """Seconds into a word, spread evenly over it, in any order. Where in a word a voice breaks off
    decides how long it is heard on: within a tone the caller's side fills in what is missing for
    some 0.15 s, at its end there is nothing to go on with."""
    evenly = [WORD_MS / 1000 * (number + 0.5) / rounds for number in range(rounds)]
    return random.sample(evenly, rounds)


async def _gap(here: Scene, house: House, way: Way, number: int, moment: float) -> float:
    called = time.monotonic()
    agent = (await here.stood_by())[0] if house in STANDBYS else await here.begin()
    await here.stage.warmed()  # a cold process would be measured instead
    if house != "livekit":
        await asyncio.sleep(max(0.0, called + KNOWN_S - time.monotonic()))
    await here.converse(agent)
    await asyncio.sleep(moment)
    loss = await here.lose(agent, _happening(here, agent, way, number))
    return 1000 * loss.gap


def _happening(here: Scene, agent: Job, way: Way, number: int) -> Happening:
    worker = here.stage.worker_of(agent)
    if worker.part.mode == "livekit":

        async def killed_and_seen() -> None:
            agent.kill()
            await here.stage.dispatch(here.room)

        return killed_and_seen
    ways: dict[Way, Happening] = {
        "job_kill": agent.kill,
        "worker_kill": worker.kill_all if number % 2 else worker.kill,
        "freeze": agent.freeze,
        "sigterm": worker.terminate,
    }
    return ways[way]


async def _silence(directory: Path, bound: float) -> float:
    async with _stage(directory, "livekit") as stage, scene(stage, "alone") as here:
        agent = await here.talking()
        agent.kill()
        killed = time.monotonic()
        try:
            came = await here.caller.hears(besides=[agent.identity], after=killed, within=bound)
        except TimeoutError:
            return 1000 * bound
        return 1000 * (came.at - killed)


async def _cuts(directory: Path, when: Sequence[float]) -> list[Cut]:
    async with cutting_stage(directory) as stage:
        return [
            one for moment in when for one in await asyncio.wait_for(cut(stage, moment), ROUND_S)
        ]


async def _standby(directory: Path, kind: StandbyKind, seconds: float) -> tuple[Cost, Cost]:
    async with _stage(directory, kind) as stage, scene(stage, "standby") as here:
        _, standby = await here.stood_by()
        await stage.warmed()
        await asyncio.sleep(1)  # what it took to become one is no cost of being one
        idle = stage.worker_of(standby).idle_process()
        waits, rests = psutil.Process(standby.pid), psutil.Process(idle)
        before = _spent(waits), _spent(rests)
        await asyncio.sleep(seconds)
        after = _spent(waits), _spent(rests)
        cpu = [100 * (b - a) / seconds for a, b in zip(before, after, strict=True)]
        return Cost(cpu[0], _own(waits)), Cost(cpu[1], _own(rests))


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _own(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / 1e6
