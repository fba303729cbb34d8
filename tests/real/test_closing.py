"""How a call closes on a real livekit-server, and what the records say of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit import Recall
from recall_livekit.engine.fold import Fold
from recall_livekit.testing.leash import eventually

from ..conftest import engine_of
from .scene import Scene, scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with Stage(directory, Part()) as stage:
        yield stage


async def test_the_caller_leaves(stage: Stage) -> None:
    async with scene(stage, "leaves") as here:
        await here.begin()
        await here.hang_up()
        assert await outcome(here) == "left"
        await gone(here)


async def test_the_room_is_deleted(stage: Stage) -> None:
    async with scene(stage, "deleted") as here:
        await here.begin()
        await stage.close(here.room)
        assert await outcome(here) == "ended"


async def test_the_agent_is_evicted(stage: Stage) -> None:
    async with scene(stage, "evicted") as here:
        agent = await here.begin()
        await stage.evict(here.room, agent.identity)
        assert await outcome(here) == "handover"


async def test_a_job_whose_worker_is_killed_hands_over_and_leaves_the_room(stage: Stage) -> None:
    async with scene(stage, "orphan") as here:
        agent = await here.talking()
        killed = time.monotonic()
        stage.worker_of(agent).kill()
        assert await outcome(here, within=2) == "handover"
        await stage.left(here.room, agent.identity, within=3)
        print(f"the room is clean {1000 * (time.monotonic() - killed):.0f} ms after the kill")
        [cut] = (await here.recall.read(here.room)).partials
        assert cut.text.startswith("Thanks")


async def outcome(here: Scene, *, within: float = 5.0) -> str:
    async def told() -> str | None:
        fold = await fold_of(here.recall, here.room)
        return fold.run.outcome if fold.run else None

    return await eventually(told, within=within)


async def fold_of(recall: Recall, room: str) -> Fold:
    return await engine_of(recall)._chain(room).refresh()


async def gone(here: Scene) -> None:
    """Return when nobody is in the room: the job was shut down with the caller's leaving."""

    async def empty() -> bool:
        return not await here.stage.present(here.room)

    await eventually(empty, within=5)
