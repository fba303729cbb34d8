"""What LiveKit does without us, so that one sees what is ours."""

import asyncio
import time
from pathlib import Path

import pytest

from .dialogue import NUMBER
from .scene import report, scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio
PATIENCE_S = 3.0


async def test_nobody_comes_back_and_whoever_is_sent_has_forgotten_it(directory: Path) -> None:
    async with asyncio.timeout(60), Stage(directory, Part(mode="livekit")) as stage:
        async with scene(stage, "alone") as here:
            agent = await here.talking()
            killed = time.monotonic()
            agent.kill()
            await asyncio.sleep(PATIENCE_S)
            assert not here.caller.timeline.voices(after=killed + 0.5)
            assert agent.identity in await stage.present("alone")

        async with scene(stage, "dispatched") as here:
            agent = await here.talking()

            async def killed_and_seen() -> None:
                agent.kill()
                await stage.dispatch("dispatched")

            loss = await here.lose(agent, killed_and_seen)
            await here.greeted(loss.successor)
            assert NUMBER not in here.caller.read(loss.successor)
            report("livekit alone, dispatched again at once", loss)
