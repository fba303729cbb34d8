"""How much longer a resumed agent takes to be ready to speak than a plain LiveKit agent."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from recall_livekit import Recall

from .figures import median_extra_ms, median_ms
from .recorded import LENGTHS, copied, record_calls, url_of
from .registry import Row, Scale, benchmark
from .resumed import Resumed, end
from .sessions import Plain, new_session

WARM_UP = 3
WITHIN_S = 10.0


def _resume(turns: int, scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        recorded = Path(directory) / "records"
        ours, alone = asyncio.run(_pairs(recorded, scale.of(turns, 10), scale.of(60, 2)))
    extra, floor = median_extra_ms(ours, alone), median_ms(alone)
    return [Row(f"on_enter_resume_{turns}", extra, "ms", floor, "<= 5 ms extra")]


for _turns in LENGTHS:
    benchmark(f"on_enter_resume_{_turns}")(partial(_resume, _turns))


async def _pairs(recorded: Path, turns: int, rounds: int) -> tuple[list[float], list[float]]:
    await record_calls(recorded, turns)
    ours: list[float] = []
    alone: list[float] = []
    for _ in range(WARM_UP + rounds):
        alone.append(await plain())
        ours.append(await resumed(recorded))
    return ours[WARM_UP:], alone[WARM_UP:]


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
    """The same with Recall, on a copy of the records."""
    with copied(recorded) as directory:
        return await entered(directory)


async def entered(directory: Path) -> float:
    """Seconds from opening the records and construction to `on_resume`."""
    session = new_session()
    gc.collect()
    began = time.perf_counter()
    recall = Recall.open(url_of(directory))
    agent = Resumed(recall, "call-0")
    await session.start(agent)
    entered_at = await asyncio.wait_for(agent.entered, WITHIN_S)
    await end(session, agent)
    await recall.aclose()
    return entered_at - began
