"""A call's agent is lost; the watcher in another worker, or in the same one, sends the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit.testing.leash import eventually

from .dialogue import MORE, NUMBER
from .scene import Loss, Scene, report, scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio

LEAK_S = 0.5
AWAY_S = 5.0
WARM_UP_S = 3.0


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    part = Part(watcher=True, standby="following")
    async with Stage(directory, part, part) as stage:
        yield stage


async def test_agents_242_a_job_is_killed(stage: Stage) -> None:
    async with scene(stage, "job-killed") as here:
        agent = await here.talking()
        loss = await here.lose(agent, agent.kill)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        report("job killed", loss)


async def test_agents_1472_a_worker_is_killed(stage: Stage) -> None:
    async with scene(stage, "worker-killed") as here:
        agent = await here.talking()
        loss = await here.lose(agent, stage.worker_of(agent).kill)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        report("worker killed", loss)


async def test_livekit_4887_a_worker_is_killed_with_all_its_jobs(stage: Stage) -> None:
    async with scene(stage, "machine-died") as here:
        agent = await here.talking()
        loss = await here.lose(agent, stage.worker_of(agent).kill_all)
        assert loss.successor != agent.identity  # LiveKit would throw it out for the dead one
        await here.assert_resumed(loss)
        report("worker killed with its jobs", loss)


async def test_agents_3637_a_frozen_agent_is_replaced_and_says_nothing_when_it_wakes(
    stage: Stage,
) -> None:
    async with scene(stage, "frozen") as here:
        agent = await here.talking()
        loss = await here.lose(agent, agent.freeze)
        await here.assert_resumed(loss)
        report("frozen", loss)
        woke = time.monotonic()
        agent.wake()
        await asyncio.sleep(3)
        leaked = 0.02 * len(list(here.caller.timeline.audible(agent.identity, after=woke)))
        print(f"woken: {1000 * leaked:.0f} ms of the frozen one were heard")
        assert leaked < LEAK_S
        await here.assert_alone(loss.successor)
        assert agent.identity not in await stage.present(here.room)
        await agent.ended(within=15)


async def test_a_caller_who_answers_the_new_agent_at_once_is_heard(stage: Stage) -> None:
    """LiveKit feeds a session silence for 3 s from its first word on, while an echo canceller
    learns: not on a call that goes on."""
    async with scene(stage, "echo") as here:
        agent = await here.begin()
        await asyncio.sleep(WARM_UP_S)
        await here.converse(agent)
        loss = await here.lose(agent, agent.kill)
        await here.caller.say(MORE)
        await here.caller.reads(f"{NUMBER} nine", loss.successor, within=10)


async def test_a_standby_takes_over_from_a_killed_job(stage: Stage) -> None:
    async with scene(stage, "standby-job") as here:
        loss = await a_standby_takes_over(here)
        report("job killed, a standby following", loss)
        known = (loss.lost.identity, loss.successor)
        two = [job for job in stage.jobs(here.room) if job.identity in known]
        again = await stage.job(here.room, besides=two, within=15)
        assert again.identity not in await stage.agents(here.room)


async def test_a_standby_takes_over_from_a_killed_worker(stage: Stage) -> None:
    async with scene(stage, "standby-worker") as here:
        loss = await a_standby_takes_over(here, worker=True)
        report("worker killed with its jobs, a standby following", loss)


async def test_a_deploy_sends_a_standby_away_that_cannot_be_told(stage: Stage) -> None:
    """LiveKit tells its job to end, and waits 15 s for the entrypoint, which waits for the call:
    the standby itself must see that it is not wanted, or it takes the call and dies with it."""
    async with scene(stage, "standby-deployed") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        loss = await here.lose(agent, stage.worker_of(agent).terminate)
        report("handed over at a deploy, a standby following", loss)
        assert loss.successor != standby.identity
        assert here.caller.timeline.overlap(after=loss.at) == 0
        await here.assert_recorded()
        await here.assert_alone(loss.successor)
        await standby.ended(within=10)


async def a_standby_takes_over(here: Scene, *, worker: bool = False) -> Loss:
    agent, standby = await here.stood_by()
    await here.converse(agent)
    assert here.caller.timeline.voices() == [agent.identity]
    assert await here.stage.agents(here.room) == {agent.identity}
    kill = here.stage.worker_of(agent).kill_all if worker else agent.kill
    loss = await here.lose(agent, kill)
    assert loss.successor == standby.identity
    await here.assert_resumed(loss)
    return loss


async def test_agents_944_two_agents_by_mistake(stage: Stage) -> None:
    async with scene(stage, "twice") as here:
        await asyncio.gather(stage.dispatch(here.room), stage.dispatch(here.room))
        first = await here.caller.hears(after=0, within=10)
        await here.greeted(first.identity)
        await asyncio.sleep(1)
        assert here.caller.timeline.voices() == [first.identity]
        agent = next(job for job in stage.jobs(here.room) if job.identity == first.identity)
        await here.converse(agent)
        await here.assert_recorded()
        assert here.caller.timeline.voices() == [first.identity]


async def test_the_caller_reloads_the_page(stage: Stage) -> None:
    async with scene(stage, "reloaded") as here:
        before = await here.talking()
        await here.hang_up()
        await asyncio.sleep(AWAY_S)
        assert here.room in await stage.rooms()
        came_back = time.monotonic()
        await here.call()
        heard = await here.caller.hears(after=came_back, within=10)
        assert heard.identity != before.identity
        await here.caller.reads(NUMBER, heard.identity, within=5)
        assert "hello" not in here.caller.read(heard.identity)
        await here.assert_recorded()
        await here.assert_alone(heard.identity)
        print(f"back on the page, an agent is heard after {heard.at - came_back:.1f} s")


async def test_a_room_that_is_closed_and_used_again_begins_afresh(stage: Stage) -> None:
    async with scene(stage, "again") as here:
        await here.talking()
        await stage.close(here.room)
        await here.hang_up()
        await here.call()
        known = stage.jobs(here.room)
        await stage.dispatch(here.room)
        agent = await stage.job(here.room, besides=known)
        await here.greeted(agent.identity)
        assert not [turn for turn in await here.recall.turns(here.room) if turn.role == "user"]
        assert await stage.agents(here.room) == {agent.identity}


async def test_the_caller_leaves_while_a_new_agent_is_on_its_way(stage: Stage) -> None:
    async with scene(stage, "gone") as here:
        agent = await here.talking()
        agent.kill()
        await asyncio.sleep(0.2)
        await here.hang_up()

        async def empty() -> bool:
            return here.room not in await stage.rooms() and not stage.living(here.room)

        await eventually(empty, within=20)
        dispatched = stage.jobs(here.room)
        await asyncio.sleep(3)
        assert await empty()
        assert stage.jobs(here.room) == dispatched
