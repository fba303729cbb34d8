"""How much longer a resumed agent takes to be ready to speak than a plain LiveKit agent."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import median

from recall_livekit import Recall

from .figures import MS, median_extra_ms, median_ms
from .recorded import copied, record_calls, url_of
from .registry import Row, Scale, benchmark
from .resumed import Resumed, end
from .sessions import Plain, new_session

TURNS = (10, 100, 1_000, 10_000)
TURNS_OF_ONE = 100
WARM_UP = 3
WITHIN_S = 10.0


def _resume(turns: int, scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        recorded = Path(directory) / "records"
        ours, alone = asyncio.run(_pairs(recorded, scale.of(turns, 10), scale.of(60, 2)))
    extra, floor = median_extra_ms(ours, alone), median_ms(alone)
    return [Row(f"on_enter_resume_{turns}", extra, "ms", floor, "<= 5 ms extra")]


for _turns in TURNS:
    benchmark(f"on_enter_resume_{_turns}")(partial(_resume, _turns))


@benchmark("on_enter_beside_20000")
def beside(scale: Scale) -> Iterable[Row]:
    """The floor is the same extra where the call is alone in its directory."""
    with tempfile.TemporaryDirectory() as directory:
        others = scale.of(20_000 // TURNS_OF_ONE, 1)
        triples = asyncio.run(_triples(Path(directory), others, scale.of(60, 2)))
    many = MS * median(many - plain for many, _, plain in triples)
    one = MS * median(one - plain for _, one, plain in triples)
    return [Row("on_enter_beside_20000", many, "ms", one, "<= 1.5 x floor")]


async def _pairs(recorded: Path, turns: int, rounds: int) -> tuple[list[float], list[float]]:
    await record_calls(recorded, turns)
    ours: list[float] = []
    alone: list[float] = []
    for _ in range(WARM_UP + rounds):
        alone.append(await plain())
        ours.append(await resumed(recorded))
    return ours[WARM_UP:], alone[WARM_UP:]


async def _triples(directory: Path, others: int, rounds: int) -> list[tuple[float, float, float]]:
    await record_calls(directory / "many", TURNS_OF_ONE, 1 + others)
    await record_calls(directory / "one", TURNS_OF_ONE)
    triples = [
        (await resumed(directory / "many"), await resumed(directory / "one"), await plain())
        for _ in range(WARM_UP + rounds)
    ]
    return triples[WARM_UP:]


async def plain() -> float:
    """Seconds from the construction of a plain agent to its `on_enter`."""
    session = new_session()
    gc.collect()  # so that nobody pays for another's garbage
    began = time.perf_counter()
    agent = Plain()
    await session.start(agent)
    entered = await asyncio.wait_for(agent.entered, WITHIN_S)
    await end(session, agent)
    return entered - began


async def resumed(recorded: Path) -> float:
    """Seconds from opening the records and construction to `on_resume`, on a copy of them."""
    with copied(recorded) as directory:
        session = new_session()
        gc.collect()
        began = time.perf_counter()
        recall = Recall.open(url_of(directory))
        agent = Resumed(recall, "call-0")
        await session.start(agent)
        entered = await asyncio.wait_for(agent.entered, WITHIN_S)
        await end(session, agent)
        await recall.aclose()
    return entered - began
