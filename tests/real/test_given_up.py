"""A call that kills every agent it gets is given up, and no other call is harmed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit.watcher.settings import WatcherSettings

from .dialogue import DEADLY, SORRY
from .scene import scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio

FALLBACK = "fallback"


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    watching = Part(watcher=True, fallback=FALLBACK)
    sorry = Part(mode="fallback", agent=FALLBACK, idle=1)
    async with Stage(directory, watching, watching, sorry) as stage:
        yield stage


async def test_a_call_that_kills_its_agents(stage: Stage) -> None:
    async with scene(stage, "healthy") as healthy, scene(stage, "deadly") as deadly:
        unharmed = await healthy.begin()
        await deadly.begin()
        told = time.monotonic()
        await deadly.caller.say(DEADLY)
        sorry = await stage.job(deadly.room, worker="worker-3", within=60)
        print(f"given up after {time.monotonic() - told:.1f} s")
        await deadly.caller.hears_words(SORRY, sorry.identity, within=10)
        await asyncio.sleep(5)
        jobs = stage.jobs(deadly.room)
        died = [job for job in jobs if job.worker != sorry.worker]
        assert len(died) == WatcherSettings().give_up_after
        assert not any(job.lives for job in died)
        assert [job for job in jobs if job.worker == sorry.worker] == [sorry]
        assert stage.jobs(healthy.room) == [unharmed]
        await healthy.converse(unharmed)
        await healthy.assert_recorded()
