"""How much longer `session.start` takes with a realtime model when a call goes on.

The real OpenAI class against a server on loopback that confirms what it is sent after 100 ms, as
a far one does. The floor is a plain LiveKit agent with the same model and no history.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from livekit.agents import Agent, llm

from recall_livekit import Recall

from .figures import median_extra_ms, median_ms
from .recorded import copied, record_calls, url_of
from .registry import Row, Scale, Skipped, benchmark
from .resumed import Resumed
from .sessions import Plain

if TYPE_CHECKING:
    from tests.openai.server import OpenAIServer

WARM_UP = 3
TURNS = 100
ACK_S = 0.1


@benchmark("realtime_start_resumed", "realtime_start_with_history")
def measure(scale: Scale) -> Iterable[Row]:
    if find_spec("livekit.plugins.openai") is None:
        raise Skipped("livekit-plugins-openai is not installed")
    with tempfile.TemporaryDirectory() as directory:
        recorded = Path(directory) / "records"
        ours, alone, awaited = asyncio.run(_triples(recorded, scale.of(TURNS, 10), scale.of(40, 2)))
    floor = median_ms(alone)
    yield Row("realtime_start_resumed", median_extra_ms(ours, alone), "ms", floor, "<= 5 ms extra")
    yield Row("realtime_start_with_history", median_extra_ms(awaited, alone), "ms", floor)


async def _triples(recorded: Path, turns: int, rounds: int) -> tuple[list[float], ...]:
    from tests.openai.server import openai_server

    await record_calls(recorded, turns)
    found: tuple[list[float], ...] = ([], [], [])
    async with openai_server(ack_delay=ACK_S) as server:
        for _ in range(WARM_UP + rounds):
            found[0].append(await _resumed(server, recorded))
            found[1].append(await _started(server, Plain()))
            found[2].append(await _started(server, _with_history()))
    return tuple(one[WARM_UP:] for one in found)


def _with_history() -> Agent:
    history = llm.ChatContext([llm.ChatMessage(role="user", content=["a table for four"])])
    return Agent(instructions="You are kind.", chat_ctx=history)


async def _resumed(server: OpenAIServer, recorded: Path) -> float:
    with copied(recorded) as directory:
        async with _opened(directory) as agent:
            seconds = await _started(server, agent)
            await agent.entered
            return seconds


@asynccontextmanager
async def _opened(directory: Path) -> AsyncIterator[Resumed]:
    async with Recall.open(url_of(directory)) as recall:
        agent = Resumed(recall, "call-0")
        await agent.call.ready()  # as on a worker that connects to its room meanwhile
        yield agent
        await agent.call.aclose()


async def _started(server: OpenAIServer, agent: Agent) -> float:
    from tests.openai.line import open_line, realtime_model

    began = time.perf_counter()
    async with open_line(agent, realtime_model(server)):
        return time.perf_counter() - began
