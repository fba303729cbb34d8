"""All the calls of a dead worker come back, though LiveKit drops dispatches that come at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from recall_livekit import Recall
from recall_livekit.testing.leash import eventually

from .caller import Caller
from .dialogue import GREETING, bare
from .stage import Stage
from .workers import Part

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CALLS = 12
BACK_S = 60


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    part = Part(watcher=True, serves=True, idle=1)
    async with Stage(directory, part, part) as stage:
        yield stage


async def test_twelve_calls_come_back_and_none_twice(stage: Stage) -> None:
    """The worker that is left has one idle process, so it takes one call at a time."""
    dying, taking = stage.workers
    await taking.end()
    rooms = [f"served-{number}" for number in range(CALLS)]
    async with AsyncExitStack() as stack:
        recall = await stack.enter_async_context(Recall.open(stage.records))
        callers = {room: stage.caller(room, silent=True) for room in rooms}
        for caller in callers.values():
            await stack.enter_async_context(caller)
        first = await all_served(stage, rooms, besides=set())
        for room, caller in callers.items():
            await caller.reads(GREETING, first[room], within=15)
        await taking.start()
        dying.kill_all()
        second = await all_served(stage, rooms, besides=set(first.values()))
        await asyncio.sleep(3)
        for room, caller in callers.items():
            await resumed_once(stage, recall, caller, room, first[room], second[room])


async def all_served(stage: Stage, rooms: Sequence[str], *, besides: set[str]) -> dict[str, str]:
    """The agent of each room, as soon as all have one that is none of these."""

    async def agents() -> dict[str, str] | None:
        inside = [await stage.agents(room) - besides for room in rooms]
        if all(inside):
            return {room: min(there) for room, there in zip(rooms, inside, strict=True)}
        return None

    return await eventually(agents, within=BACK_S)


async def resumed_once(
    stage: Stage, recall: Recall, caller: Caller, room: str, dead: str, agent: str
) -> None:
    assert await stage.agents(room) - {dead} == {agent}
    assert [job.identity for job in stage.living(room)] == [agent]
    await caller.reads("welcome back", agent, within=15)
    assert " ".join(bare(GREETING)) not in caller.read(agent)
    greetings = [turn for turn in await recall.turns(room) if turn.content.strip() == GREETING]
    assert len(greetings) == 1
