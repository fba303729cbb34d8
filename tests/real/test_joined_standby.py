"""A standby that waits in the room: it takes over at once, and hears what was said meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit.testing.leash import eventually

from .dialogue import MORE, NUMBER
from .scene import report, scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    part = Part(watcher=True, standby="joined")
    async with Stage(directory, part, part) as stage:
        yield stage


async def test_its_job_is_killed(stage: Stage) -> None:
    async with scene(stage, "standby-job") as here:
        agent, standby = await here.stood_by()
        assert standby.identity in await stage.present(here.room)
        assert await stage.agents(here.room) == {agent.identity}
        await here.converse(agent)
        assert here.caller.timeline.voices() == [agent.identity]
        loss = await here.lose(agent, agent.kill)
        assert loss.successor == standby.identity
        await here.assert_resumed(loss)
        assert standby.identity in await stage.agents(here.room)
        report("job killed, a standby joined", loss)


async def test_its_worker_is_killed(stage: Stage) -> None:
    async with scene(stage, "standby-worker") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        loss = await here.lose(agent, stage.worker_of(agent).kill)
        await here.assert_resumed(loss)
        assert loss.successor == standby.identity
        report("worker killed, a standby joined", loss)


async def test_what_is_said_while_nobody_is_there_is_heard(stage: Stage) -> None:
    async with scene(stage, "standby-hears") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)

        async def killed_and_talked_to() -> None:
            agent.kill()
            await here.caller.say(MORE)

        loss = await here.lose(agent, killed_and_talked_to)
        assert loss.successor == standby.identity
        await here.caller.reads(f"{NUMBER} nine", standby.identity, within=10)
        assert MORE in [turn.content for turn in await here.recall.turns(here.room)]


async def test_a_deploy_makes_it_the_agent(stage: Stage) -> None:
    async with scene(stage, "standby-deployed") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        loss = await here.lose(agent, stage.worker_of(agent).terminate)
        report("handed over at a deploy, a standby joined", loss)
        assert loss.successor == standby.identity
        assert here.caller.timeline.overlap(after=loss.at) == 0
        await here.assert_recorded()
        await here.assert_alone(loss.successor)


async def test_on_a_worker_that_goes_it_is_gone_at_once(stage: Stage) -> None:
    """LiveKit leaves it in the room for seconds: it would take a call that it cannot speak for."""
    async with scene(stage, "standby-leaves") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        stage.worker_of(standby).terminate()

        async def gone() -> bool:
            return standby.identity not in await stage.present(here.room)

        await eventually(gone, within=1)
        loss = await here.lose(agent, agent.kill)
        report("job killed, its standby's worker on its way out", loss)
        assert loss.successor != standby.identity
        await here.assert_resumed(loss)
