"""A call that kills each agent it gets is given up; the others are none the worse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from recall_livekit import InvalidSettings, Recall
from recall_livekit.testing.leash import eventually
from recall_livekit.watcher import Watcher

from .house import Agent, House
from .running import Running, house, now, replaced, virtual, watching


async def deadly(
    here: House,
    room: str,
    *,
    how: Callable[[Agent], None] = Agent.kill,
    after: float = 0.3,
    **options: str,
) -> list[float]:
    """A call whose agents die soon, all of them but the first, which is killed after a while;
    returns when the others came, as they do."""
    came: list[float] = []

    def joined(agent: Agent) -> None:
        if agent.call == room and agent.name == "support":
            came.append(now())
            asyncio.get_running_loop().call_later(after, how, agent)

    first = await here.call(room, **options)
    await asyncio.sleep(6)
    here.on_join = joined
    how(first)
    return came


@virtual
async def test_a_call_that_kills_its_agents_is_given_up_with_growing_pauses() -> None:
    async with house() as here, watching(here) as watch:
        other = await here.call("other")
        came = await deadly(here, "billing")
        await asyncio.sleep(300)
        assert len(came) == 4
        pauses = [later - earlier for earlier, later in pairwise(came)]
        assert pauses == sorted(pauses)
        assert 1 < pauses[0] < 2 < pauses[1] < 3 < pauses[2] < 5
        assert watch.counts.given_up == 1
        assert watch.counts.deaths == 5
        assert here.speaking("other") == [other]
        assert {room for room, *_ in here.dispatched} == {"billing"}


@pytest.mark.parametrize("after", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("how", [Agent.freeze, Agent.end, Agent.kill], ids=lambda how: how.__name__)
def test_it_is_given_up_however_they_die(how: Callable[[Agent], None], after: float) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            came = await deadly(here, "billing", how=how, after=after)
            await asyncio.sleep(300)
            assert len(came) == 4
            assert watch.counts.given_up == 1

    story()


@virtual
async def test_the_fallback_is_dispatched_once_and_stays() -> None:
    async with house() as here, watching(here, fallback_agent="sorry") as watch:
        await deadly(here, "billing", metadata="told")
        await asyncio.sleep(300)
        (sorry,) = here.live("billing")
        assert sorry.name == "sorry"
        fallbacks = [one for one in here.dispatched if one[1] == "sorry"]
        assert [one[3] for one in fallbacks] == ["told"]
        assert watch.counts.fallbacks == watch.counts.given_up == 1


@virtual
async def test_a_fallback_that_dies_too_is_not_dispatched_again() -> None:
    async with house() as here, watching(here, fallback_agent="sorry"):
        await deadly(here, "billing")
        await asyncio.sleep(60)
        (sorry,) = here.live("billing")
        sorry.kill()
        await asyncio.sleep(300)
        assert [one[1] for one in here.dispatched].count("sorry") == 1
        assert here.live("billing") == []


@virtual
async def test_a_fallback_that_was_dropped_is_dispatched_until_it_comes() -> None:
    async with house() as here, watching(here, fallback_agent="sorry"):
        came = await deadly(here, "billing")
        await eventually(lambda: is_true(len(came) == 4), within=60)
        here.idle = 0
        await asyncio.sleep(10)
        here.idle = 1
        await asyncio.sleep(10)
        assert [one.name for one in here.live("billing")] == ["sorry"]


@virtual
async def test_an_agent_that_lived_well_begins_the_count_anew() -> None:
    async with house() as here, watching(here) as watch:
        agent = await here.call("billing")
        for _ in range(12):
            await asyncio.sleep(70)
            agent.kill()
            assert await replaced(here, "billing", agent, within=2) < 0.5
            agent = await here.agent("billing")
        assert watch.counts.given_up == 0


@virtual
async def test_the_next_watcher_knows_how_many_died() -> None:
    async with house() as here:
        watchers = [Running(here, agent_name="support") for _ in range(8)]
        came = await deadly(here, "billing", after=2.5)
        for _ in range(7):
            await asyncio.sleep(3.3)
            next(one for one in watchers if one.counts.acting).kill()
        await asyncio.sleep(100)
        assert 4 <= len(came) <= 6
        for one in watchers:
            await one.stop()


@virtual
async def test_a_caller_who_comes_back_to_a_call_that_was_given_up_is_served() -> None:
    async with house() as here, watching(here) as watch:
        came = await deadly(here, "billing")
        await asyncio.sleep(120)
        assert watch.counts.given_up == 1
        tried = len(came)
        here.on_join = lambda agent: None
        here.hangs_up("billing")
        await asyncio.sleep(5)
        here.calls("billing")
        await here.agent("billing", within=5)
        await asyncio.sleep(120)
        assert len(here.speaking("billing")) == 1
        assert len(came) == tried
        assert watch.counts.given_up == 1


async def is_true(value: bool) -> bool:
    return value


def test_the_fallback_must_be_another_agent(tmp_path: object) -> None:
    recall = Recall.open(f"sqlite:///{tmp_path}")
    with pytest.raises(InvalidSettings):
        Watcher(recall, agent_name="support", fallback_agent="support")


def test_rooms_are_served_by_an_agent_that_is_named(tmp_path: object) -> None:
    recall = Recall.open(f"sqlite:///{tmp_path}")
    with pytest.raises(InvalidSettings, match="which agent"):
        Watcher(recall, serve_rooms=lambda _: True)
