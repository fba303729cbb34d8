"""Watchers killed, and webhooks lost, doubled and forged: there is one agent in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from .scene import report, scene
from .stage import Stage
from .watchers import WatcherProcess, Webhooks
from .workers import AGENT, Part

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True)
class House:
    """Two workers that watch nothing, two watchers that do, and the webhooks on their way."""

    stage: Stage
    watchers: tuple[WatcherProcess, WatcherProcess]
    webhooks: Webhooks


@pytest.fixture(scope="module")
async def built(directory: Path) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        webhooks = await stack.enter_async_context(Webhooks())
        stage = Stage(directory, Part(), Part(), webhooks=[webhooks.url])
        await stack.enter_async_context(stage)
        one, two = (WatcherProcess(f"watcher-{n}", directory, stage) for n in (1, 2))
        for watcher in (one, two):
            stack.push_async_callback(watcher.end)
            await watcher.start()
        webhooks.targets = [one.webhook_url, two.webhook_url]
        yield House(stage, (one, two), webhooks)


@pytest.fixture
async def house(built: House) -> AsyncIterator[House]:
    """Both watchers run, and each webhook arrives once, whatever the test before it did."""
    yield built
    built.webhooks.times = 1
    for watcher in built.watchers:
        if not watcher.lives:
            await watcher.end()
            await watcher.start()


async def test_livekit_4390_an_agent_asked_for_in_a_room_that_is_there(house: House) -> None:
    """LiveKit ignores what a caller's token asks for if the room is there already."""
    await house.stage.open("served-before")
    async with scene(house.stage, "served-before", asks_for=AGENT) as here:
        await asyncio.sleep(1)
        assert not house.stage.jobs(here.room)
        agent = await house.stage.job(here.room, within=10)
        await here.greeted(agent.identity)
        assert house.stage.jobs(here.room) == [agent]


async def test_livekit_3959_the_first_dispatch_was_dropped(house: House) -> None:
    stage = house.stage
    async with scene(stage, "served-late") as here:
        for worker in stage.workers:
            await worker.end()
        await stage.dispatch(here.room)
        await asyncio.sleep(3)
        assert not stage.jobs(here.room)
        await stage.workers[0].start()
        agent = await stage.job(here.room, within=10)
        await here.greeted(agent.identity)
        await here.converse(agent)
        await here.assert_recorded()
        await here.assert_alone(agent.identity)
        assert stage.jobs(here.room) == [agent]


async def test_two_watchers_and_every_webhook_twice(house: House) -> None:
    house.webhooks.times = 2
    async with scene(house.stage, "doubled") as here:
        agent = await here.talking()
        loss = await here.lose(agent, agent.kill)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        assert len(house.stage.jobs(here.room)) == 2
        report("two watchers, webhooks doubled", loss)


async def test_no_webhook_arrives(house: House) -> None:
    house.webhooks.times = 0
    async with scene(house.stage, "lost") as here:
        agent = await here.talking()
        loss = await here.lose(agent, agent.kill)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        report("webhooks lost", loss)


async def test_webhooks_are_forged(house: House) -> None:
    async with scene(house.stage, "forged") as here:
        agent = await here.talking()
        true = next(one for one in house.webhooks.received if one.room == here.room)
        for forged in (
            replace(true, body=true.body.replace(b"room_started", b"participant_left")),
            replace(true, body=true.body + b" "),
            replace(true, authorization=""),
            replace(true, authorization=true.authorization[:-4] + "AAAA"),
        ):
            if forged != true:
                assert set(await house.webhooks.send(forged)) == {401}
        assert set(await house.webhooks.send(true)) == {200}  # late, and once more
        await asyncio.sleep(2)
        await here.assert_alone(agent.identity)
        assert house.stage.jobs(here.room) == [agent]


@pytest.mark.parametrize("after", [0.05, 0.3])
async def test_the_watcher_is_killed_while_it_acts(house: House, after: float) -> None:
    async with scene(house.stage, f"watcher-killed-{after}") as here:
        agent = await here.talking()
        [acting] = [watcher for watcher in house.watchers if watcher.acts]

        async def both_die() -> None:
            agent.kill()
            await asyncio.sleep(after)
            acting.kill()

        loss = await here.lose(agent, both_die)
        await here.assert_resumed(loss)
        await asyncio.sleep(1)
        await here.assert_alone(loss.successor)
        report(f"the watcher killed {after} s after the job", loss)
