"""The records are behind a Recall server: broken streams, a cut wire, a server that was killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from recall_livekit.testing.leash import eventually

from ..remote.wire import Wire, wire
from .dialogue import TELL_NUMBER
from .records import RecordsServer
from .scene import Scene, report, scene
from .stage import Stage
from .workers import Job, Part

pytestmark = pytest.mark.anyio

CUT_S = 6.5
"""Longer than a lease lives that nobody renews."""


@dataclass(frozen=True, slots=True)
class House:
    """A stage whose records are behind a server, with a wire to it of each worker's own."""

    stage: Stage
    records: RecordsServer
    wires: dict[str, Wire]

    def wire_of(self, agent: Job) -> Wire:
        return self.wires[agent.worker]


@pytest.fixture(scope="module")
async def house(directory: Path) -> AsyncIterator[House]:
    part = Part(watcher=True, standby="following")
    async with AsyncExitStack() as stack:
        records = await stack.enter_async_context(RecordsServer(directory))
        stage = Stage(directory, part, part, records=records.url)
        wires = {}
        for worker in stage.workers:
            wires[worker.name] = await stack.enter_async_context(wire(records.url))
            worker.records = wires[worker.name].address
        await stack.enter_async_context(stage)
        yield House(stage, records, wires)


async def test_a_job_is_killed(house: House) -> None:
    async with scene(house.stage, "job-killed") as here:
        agent = await here.talking()
        loss = await here.lose(agent, agent.kill)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        report("over a server, job killed", loss)


async def test_a_worker_is_killed(house: House) -> None:
    async with scene(house.stage, "worker-killed") as here:
        agent = await here.talking()
        loss = await here.lose(agent, house.stage.worker_of(agent).kill_all)
        await here.assert_resumed(loss)
        report("over a server, worker killed with its jobs", loss)


async def test_a_standby_takes_over(house: House) -> None:
    async with scene(house.stage, "standby-job") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        assert here.caller.timeline.voices() == [agent.identity]
        loss = await here.lose(agent, agent.kill)
        assert loss.successor == standby.identity
        await here.assert_resumed(loss)
        report("over a server, job killed, a standby following", loss)


async def test_an_agent_that_is_cut_off_from_the_records_keeps_its_call(house: House) -> None:
    async with scene(house.stage, "cut-off") as here:
        agent = await here.talking()
        await kept_through(here, agent, house.wire_of(agent))
        assert house.stage.jobs(here.room) == [agent]


async def test_a_standby_leaves_the_call_to_an_agent_that_is_cut_off(house: House) -> None:
    async with scene(house.stage, "standby-cut-off") as here:
        agent, standby = await here.stood_by()
        await here.converse(agent)
        await kept_through(here, agent, house.wire_of(agent))
        assert house.stage.jobs(here.room) == [agent, standby]


async def test_the_records_are_away_while_the_agent_lives(house: House) -> None:
    async with scene(house.stage, "records-away") as here:
        agent = await here.talking()
        await house.records.killed()
        try:
            await asyncio.sleep(1)
            again = time.monotonic()
            await here.converse(agent)
        finally:
            await house.records.restarted()
        await asyncio.sleep(2)
        assert here.caller.timeline.voices(after=again) == [agent.identity]
        assert house.stage.jobs(here.room) == [agent]
        await said_twice(here)


async def test_the_records_are_away_while_the_agent_dies(house: House) -> None:
    async with scene(house.stage, "both-died") as here:
        agent = await here.talking()

        async def both_die() -> None:
            await house.records.killed()
            try:
                agent.kill()
            finally:
                await house.records.restarted()

        loss = await here.lose(agent, both_die)
        await here.assert_resumed(loss)
        await here.assert_alone(loss.successor)
        print(f"the server restarted meanwhile: {1000 * loss.gap:.0f} ms")


async def kept_through(here: Scene, agent: Job, cut: Wire) -> None:
    """Its packets to the records are dropped, and it goes on; what was said is recorded later."""
    cut.drop()
    began = time.monotonic()
    try:
        await asyncio.sleep(CUT_S)
        await here.converse(agent)
    finally:
        cut.heal()
    await said_twice(here)
    await here.assert_alone(agent.identity)
    assert here.caller.timeline.voices(after=began) == [agent.identity]


async def said_twice(here: Scene) -> None:
    """What was said while the records could not be reached is there."""

    async def recorded() -> bool:
        turns = await here.recall.turns(here.room)
        return [turn.content for turn in turns].count(TELL_NUMBER) == 2

    await eventually(recorded, within=10)
