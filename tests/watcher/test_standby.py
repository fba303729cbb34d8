"""Each live call has its standby; it is given time to act, and never counts as an agent."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from .house import Agent, House
from .running import house, now, replaced, virtual, watching

Kind = Literal["following", "joined"]
KINDS: tuple[Kind, ...] = ("following", "joined")


def standbys(here: House, room: str) -> list[Agent]:
    return [one for one in here.all if one.call == room and one.answers and one.state == "standby"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_call_is_given_one_and_only_one(kind: Kind) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here, standby=kind) as watch:
            agent = await here.call("billing", metadata="told")
            await asyncio.sleep(60)
            assert len(standbys(here, "billing")) == 1
            ((_, name, orders, metadata),) = here.dispatched
            assert (name, metadata) == ("support", "told")
            assert orders is not None
            assert orders.standby == kind
            assert here.speaking("billing") == [agent]
            assert watch.counts.standbys_joined == 1
            assert here.evicted == []

    story()


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_the_call_over_without_a_dispatch_and_another_one_follows(kind: Kind) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here, standby=kind) as watch:
            agent = await here.call("billing")
            await asyncio.sleep(10)
            (standby,) = standbys(here, "billing")
            agent.kill()
            assert await replaced(here, "billing", agent, within=2) < 0.3
            assert here.speaking("billing") == [standby]
            await asyncio.sleep(10)
            assert len(standbys(here, "billing")) == 1
            assert all(orders and orders.standby for _, _, orders, _ in here.dispatched)
            assert watch.counts.stood_in == 1
            assert watch.counts.dispatched == 0

    story()


@pytest.mark.parametrize("kind", KINDS)
def test_a_frozen_agent_is_thrown_out_and_the_standby_acts(kind: Kind) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here, standby=kind) as watch:
            agent = await here.call("billing")
            await asyncio.sleep(10)
            agent.freeze()
            assert await replaced(here, "billing", agent, within=3) < 2
            assert watch.counts.dispatched == 0
            assert here.evicted == [agent.identity]

    story()


@virtual
async def test_a_standby_that_does_not_act_is_not_waited_for_long() -> None:
    async with house() as here, watching(here, standby="following"):
        agent = await here.call("billing")
        await asyncio.sleep(10)
        (standby,) = standbys(here, "billing")
        standby._stop()  # it hangs, and holds its lease
        agent.kill()
        assert await replaced(here, "billing", agent, within=3) < 1.8


@virtual
async def test_agent_and_standby_killed_at_once_are_replaced() -> None:
    async with house() as here, watching(here, standby="joined"):
        agent = await here.call("billing")
        await asyncio.sleep(10)
        (standby,) = standbys(here, "billing")
        agent.kill()
        standby.kill()
        assert await replaced(here, "billing", agent, within=3) < 1.0
        await asyncio.sleep(10)
        assert len(standbys(here, "billing")) == 1


@virtual
async def test_standbys_are_for_the_calls_that_the_application_names() -> None:
    def failing(call: str) -> bool:
        if call == "bad":
            raise RuntimeError
        return call == "billing"

    async with house() as here, watching(here, standby="following", standby_for=failing):
        for room in ("billing", "sales", "bad"):
            await here.call(room)
        await asyncio.sleep(30)
        assert {room for room, *_ in here.dispatched} == {"billing"}


@virtual
async def test_no_standby_comes_while_a_call_waits_for_its_agent() -> None:
    async with house() as here, watching(here, standby="following"):
        agents = [await here.call(f"room {number}") for number in range(8)]
        await asyncio.sleep(1)
        for agent in agents:
            agent.kill()
        for one in list(here.all):
            if one.state == "standby":
                one.kill()
        del here.dispatched[:]
        began = now()
        for number, agent in enumerate(agents):
            await here.agent(f"room {number}", besides=agent, within=60)
        assert now() - began < 8 * 0.6 + 1
        await asyncio.sleep(60)
        assert all(len(here.speaking(f"room {number}")) == 1 for number in range(8))
        assert all(len(standbys(here, f"room {number}")) == 1 for number in range(8))


@virtual
async def test_agents_come_before_standbys() -> None:
    async with house() as here, watching(here, standby="following"):
        agents = [await here.call(f"room {number}") for number in range(8)]
        await here.call("quiet")
        await asyncio.sleep(30)
        for one in standbys(here, "quiet"):
            one.kill()
        for agent in list(here.all):
            if agent.call != "quiet":
                agent.kill()
        del here.dispatched[:]
        for number, agent in enumerate(agents):
            await here.agent(f"room {number}", besides=agent, within=60)
        await asyncio.sleep(30)
        first = next(n for n, one in enumerate(here.dispatched) if one[2] and one[2].standby)
        assert all(one[2] and not one[2].standby for one in here.dispatched[:first])
        assert first >= 8


@virtual
async def test_a_standby_that_never_comes_is_tried_with_growing_pauses() -> None:
    async with house() as here, watching(here, standby="following") as watch:
        agent = await here.call("billing")
        here.idle = 0
        await asyncio.sleep(300)
        assert 4 < watch.counts.standbys_dispatched < 12
        assert here.speaking("billing") == [agent]
        assert len(here.withdrawn) == watch.counts.standbys_dispatched


@virtual
async def test_the_agent_is_asked_as_ever_while_a_standby_is_brought() -> None:
    async with house() as here, watching(here, standby="following"):
        agent = await here.call("billing")
        here.idle = 0
        for _ in range(40):
            await asyncio.sleep(0.1)
            if here.dispatched:
                break
        here.idle = 1
        agent.kill()
        assert await replaced(here, "billing", agent, within=2) < 1.0
