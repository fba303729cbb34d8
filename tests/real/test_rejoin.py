"""Who is served after a crash, when several people are in the room of a real livekit-server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .caller import Caller
from .dialogue import NUMBER
from .scene import scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with Stage(directory, Part()) as stage:
        yield stage


@pytest.mark.parametrize("which", range(3))
async def test_of_several_people_the_caller_is_linked_again(stage: Stage, which: int) -> None:
    """LiveKit links whom its server names first, so it is tried more than once."""
    async with scene(stage, f"people-{which}") as here:
        first = await here.begin()
        await here.converse(first)
        assert (await here.recall.read(here.room)).caller == "caller"
        onlooker = stage.server.token(here.room, "a supervisor")
        async with Caller(stage.server.url, onlooker, silent=True):
            first.kill()
            await stage.dispatch(here.room)
            second = await stage.job(here.room, besides=[first])
            await here.caller.reads(NUMBER, second.identity, within=10)
            await here.converse(second)
