"""How much memory a worker with one call takes, with Recall and without."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from livekit.agents import Agent

from .children import child, tell
from .registry import Row, Scale, benchmark
from .sessions import INSTRUCTIONS, new_session


@benchmark("rss_extra")
def rss_extra(scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        ours, alone = asyncio.run(_pairs(Path(directory), scale.of(5, 1), scale.of(20, 1)))
    return [Row("rss_extra", median(ours) - median(alone), "MB", median(alone), "<= 15 MB extra")]


async def _pairs(directory: Path, rounds: int, turns: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    alone: list[float] = []
    for number in range(rounds):
        ours.append(await _megabytes(directory, turns, str(directory / f"records-{number}")))
        alone.append(await _megabytes(directory, turns, ""))
    return ours, alone


async def _megabytes(directory: Path, turns: int, records: str) -> float:
    async with child(directory, serve_call, turns, records) as process:
        return await process.told("rss")


def serve_call(turns: str, records: str) -> None:
    """In the child: a session takes some turns, and Recall is imported only if it is used."""
    asyncio.run(_serve(int(turns), records))


async def _serve(turns: int, records: str) -> None:
    session, agent = new_session(), _agent(records)
    await session.start(agent)
    for number in range(turns):
        await session.generate_reply(user_input=f"This is my turn number {number}.")
    gc.collect()
    tell("rss", _resident())
    await session.aclose()


def _agent(records: str) -> Agent:
    if not records:
        return Agent(instructions=INSTRUCTIONS)
    from recall_livekit import Recall, RecallAgent

    from .recorded import url_of

    recall = Recall.open(url_of(Path(records)))
    return RecallAgent(instructions=INSTRUCTIONS, resume="the-call", recall=recall)


def _resident() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1000
