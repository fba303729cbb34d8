"""Each live call has its standby; it is given time to act, and never counts as an agent."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from recall_livekit.rooms.livekit_rooms import Room
from recall_livekit.rooms.orders import StandbyKind
from recall_livekit.rooms.protocol import Refused
from recall_livekit.watcher import WatcherSettings

from .house import Agent, House
from .records import LoopClock
from .running import house, now, replaced, virtual, watching

KINDS: tuple[StandbyKind, ...] = ("following", "joined")


def standbys(here: House, room: str) -> list[Agent]:
    return [one for one in here.all if one.call == room and one.answers and one.state == "standby"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_call_is_given_one_and_only_one(kind: StandbyKind) -> None:
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
def test_it_takes_the_call_over_without_a_dispatch_and_another_one_follows(
    kind: StandbyKind,
) -> None:
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
def test_a_frozen_agent_is_thrown_out_and_the_standby_acts(kind: StandbyKind) -> None:
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


@virtual
async def test_a_standby_whose_lease_cannot_be_read_for_a_moment_is_the_only_one() -> None:
    async with house() as here, watching(here, standby="following") as watch:
        dispatch = here.dispatch

        async def cut(*args: Any, **kwargs: Any) -> str:
            watch.process.line.cut = True
            asyncio.get_running_loop().call_later(0.3, setattr, watch.process.line, "cut", False)
            return await dispatch(*args, **kwargs)

        here.dispatch = cut  # type: ignore[method-assign]
        await here.call("billing")
        await asyncio.sleep(30)
        assert len(standbys(here, "billing")) == 1
        assert watch.counts.standbys_dispatched == watch.counts.standbys_joined == 1


def test_a_standby_that_cannot_be_asked_for_is_tried_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here, standby="following"):
            agent = await here.call("billing")
            tries = 0

            async def refused(*args: Any, **kwargs: Any) -> str:
                nonlocal tries
                tries += 1
                raise Refused("LiveKit's server refused: internal: no")

            here.dispatch = refused  # type: ignore[method-assign]
            await asyncio.sleep(300)
            assert 4 < tries < 12
            assert here.speaking("billing") == [agent]

    story()
    assert caplog.text.count("cannot be watched") == 1


@virtual
async def test_the_pause_begins_when_the_standby_was_not_seen_to_come() -> None:
    """It is waited for as long as `join_wait`, whichever of many rooms it was for."""
    wait = {"join_wait": 5.0, "standby_retry_first": 6.0, "standby_retry_last": 6.0}
    async with house() as here, watching(here, standby="following", settings=wait):
        for number in range(4):
            await here.call(f"room {number}")
        here.idle, asked = 0, dict[str, list[float]]()
        dispatch = here.dispatch

        async def noted(room: Room, *args: Any, **kwargs: Any) -> str:
            asked.setdefault(room.name, []).append(now())
            return await dispatch(room, *args, **kwargs)

        here.dispatch = noted  # type: ignore[method-assign]
        for agent in [one for one in here.all if one.state == "standby"]:
            agent.kill()
        await asyncio.sleep(300)
        pauses = [b - a for times in asked.values() for a, b in pairwise(times)]
        assert len(asked) == 4
        assert len(pauses) > 20
        assert min(pauses) >= 11


@virtual
async def test_nobody_wakes_for_a_call_that_is_given_no_standby() -> None:
    sleep, slept = LoopClock.sleep, list[float]()

    async def noted(clock: LoopClock, seconds: float) -> None:
        slept.append(seconds)
        await sleep(clock, seconds)

    async with house() as here, watching(here, standby="following", standby_for=lambda _: False):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(LoopClock, "sleep", noted)
            await here.call("billing")
            await asyncio.sleep(60)
    assert slept
    assert WatcherSettings().ask_interval not in slept
