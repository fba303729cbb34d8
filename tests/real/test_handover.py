"""A deploy: a worker that is told to go hands its calls over, between two sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from .dialogue import NUMBER, STORY, bare, in_order
from .scene import report, scene
from .stage import Stage
from .workers import Part

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with Stage(directory, Part(watcher=True), Part(watcher=True)) as stage:
        yield stage


async def test_agents_3020_a_worker_that_is_told_to_go_hands_its_call_over(stage: Stage) -> None:
    async with scene(stage, "deployed") as here:
        agent = await here.talking()
        worker = stage.worker_of(agent)
        loss = await here.lose(agent, worker.terminate)
        successor = next(job for job in stage.jobs(here.room) if job.identity == loss.successor)
        assert successor.worker != agent.worker
        await stage.left(here.room, agent.identity)
        await asyncio.sleep(3)
        turns = await here.recall.turns(here.room)
        told = next(turn.content for turn in turns if turn.content.startswith("Thanks"))
        assert_between_sentences(bare(told))
        heard = here.caller.timeline.words(set(bare(told)), agent.identity)
        assert in_order(heard, bare(told)), (heard, told)
        assert_goes_on(bare(told), here.caller.read(loss.successor))
        assert here.caller.timeline.overlap(after=loss.at) == 0
        await here.assert_recorded()
        await here.assert_alone(loss.successor)
        await agent.ended(within=15)
        await worker.ended(within=15)
        report("handed over at a deploy", loss)


async def test_a_silent_agent_is_handed_over_silently(stage: Stage) -> None:
    async with scene(stage, "listening") as here:
        agent = await here.begin()
        await asyncio.sleep(1)
        told = time.monotonic()
        stage.worker_of(agent).terminate()
        successor = await stage.job(here.room, besides=[agent], within=10)
        await stage.left(here.room, agent.identity, within=10)
        await asyncio.sleep(1)
        assert not here.caller.timeline.voices(after=told)
        await here.converse(successor)
        await here.assert_recorded()
        assert stage.jobs(here.room) == [agent, successor]


async def test_agents_4268_a_call_that_nobody_takes_is_kept(stage: Stage) -> None:
    async with scene(stage, "nobody") as here:
        agent = await here.talking()
        worker = stage.worker_of(agent)
        other = stage.other_than(worker)
        await other.end()
        told = time.monotonic()
        worker.terminate()
        await asyncio.sleep(4)
        await here.converse(agent)
        assert here.caller.timeline.voices(after=told) == [agent.identity]
        assert await stage.agents(here.room) == {agent.identity}
        await other.start()
        heard = await here.caller.hears(besides=[agent.identity], after=told, within=40)
        await stage.left(here.room, agent.identity)
        await here.assert_recorded()
        await here.assert_alone(heard.identity)


def assert_between_sentences(said: Sequence[str]) -> None:
    """The last word that was said ends a sentence."""
    ends = {bare(sentence)[-1] for sentence in (*STORY, NUMBER)}
    assert said[-1] in ends, said


def assert_goes_on(said: Sequence[str], then: str) -> None:
    """The successor tells the rest: no greeting, no apology, and nothing twice."""
    assert "hello" not in then
    assert "welcome" not in then
    story = [word for sentence in STORY for word in bare(sentence)]
    told = said[-1]
    following = story[(story.index(told) + 1) % len(story)] if told in story else story[0]
    assert then.split()[0] == following, (said, then)
