"""How long the event loop of fifty talking sessions makes others wait."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from livekit.agents import Agent, AgentSession

from recall_livekit import Recall, RecallAgent

from .figures import p99_ms
from .recorded import sentences, url_of
from .registry import Row, Scale, benchmark
from .resumed import end
from .sessions import INSTRUCTIONS, new_session

SESSIONS = 50
TICK_S = 0.002
PAUSE_S = 2.0
"""In it the caller takes a turn and the agent one: one turn a second."""


@benchmark("loop_gap_p99")
def loop_gap(scale: Scale) -> Iterable[Row]:
    sessions, seconds = scale.of(SESSIONS, 2), scale.of(60, 2) / 10
    ours: list[float] = []
    alone: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(scale.of(3, 1)):
            alone += asyncio.run(_plain(sessions, seconds))
            ours += asyncio.run(_recorded(Path(directory) / str(number), sessions, seconds))
    return [Row("loop_gap_p99", p99_ms(ours), "ms", p99_ms(alone), "<= 1.5 x floor")]


async def _plain(sessions: int, seconds: float) -> list[float]:
    return await _gaps([Agent(instructions=INSTRUCTIONS) for _ in range(sessions)], seconds)


async def _recorded(directory: Path, sessions: int, seconds: float) -> list[float]:
    async with Recall.open(url_of(directory)) as recall:
        agents = [
            RecallAgent(instructions=INSTRUCTIONS, resume=f"call-{number}", recall=recall)
            for number in range(sessions)
        ]
        return await _gaps(agents, seconds)


async def _gaps(agents: Iterable[Agent], seconds: float) -> list[float]:
    """How late each tick came while every session took turns."""
    started = [(new_session(), agent) for agent in agents]
    await asyncio.gather(*(session.start(agent) for session, agent in started))
    talks = [asyncio.create_task(_talk(session)) for session, _ in started]
    await asyncio.sleep(min(PAUSE_S, seconds))
    late = await _ticks(seconds)
    for talk in talks:
        talk.cancel()
    await asyncio.gather(*talks, return_exceptions=True)
    await asyncio.gather(*(end(session, agent) for session, agent in started))
    return late


async def _ticks(seconds: float) -> list[float]:
    late: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await asyncio.sleep(TICK_S)
        late.append(time.perf_counter() - began - TICK_S)
    return late


async def _talk(session: AgentSession[Any]) -> None:
    for text in sentences():
        moment = random.random() * PAUSE_S
        await asyncio.sleep(moment)
        await session.generate_reply(user_input=text)
        await asyncio.sleep(PAUSE_S - moment)
