"""Many watchers, one acts; one that dies while it acts is followed by another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from recall_livekit.errors import StoreUnavailable

from .house import House
from .records import Line
from .running import Running, house, now, replaced, virtual, watching


@virtual
async def test_of_three_watchers_one_acts() -> None:
    async with house() as here, watching(here) as a, watching(here) as b, watching(here) as c:
        agent = await here.call("billing")
        await asyncio.sleep(20)
        assert [one.counts.acting for one in (a, b, c)] == [True, False, False]
        assert here.asked.count(agent.identity) < 35
        agent.kill()
        await replaced(here, "billing", agent, within=2)
        assert len(here.dispatched) == 1


@virtual
async def test_the_next_one_acts_at_once_when_the_first_dies_with_the_agents() -> None:
    async with house() as here, watching(here) as first, watching(here) as second:
        agents = [await here.call(f"room {number}") for number in range(3)]
        await asyncio.sleep(10)
        for agent in agents:
            agent.kill()
        first.kill()
        assert await replaced(here, "room 0", agents[0], within=3) < 1.2
        await asyncio.sleep(5)
        assert second.counts.acting
        assert all(len(here.speaking(f"room {number}")) == 1 for number in range(3))
        assert len(here.dispatched) == 3


@virtual
async def test_one_that_leaves_hands_over() -> None:
    async with house() as here, watching(here) as first, watching(here) as second:
        agent = await here.call("billing")
        await asyncio.sleep(5)
        await first.stop()
        await asyncio.sleep(0.5)
        assert second.counts.acting
        agent.kill()
        assert await replaced(here, "billing", agent, within=3) < 1


class Fuse:
    """Kills a watcher at one of its requests: before it is made, or after, before the answer."""

    def __init__(self, burns_at: int) -> None:
        self.burns_at = burns_at
        self.count = 0
        self.armed = False
        self.kill: Callable[[], None] = lambda: None

    def step(self) -> None:
        if self.armed:
            self.count += 1
            if self.count == self.burns_at:
                self.kill()

    @property
    def burnt(self) -> bool:
        return self.count >= self.burns_at


class FusedRooms:
    """The rooms as one watcher has them."""

    def __init__(self, house: House, fuse: Fuse) -> None:
        self._house, self._fuse = house, fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._house, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._fuse.step()
            await asyncio.sleep(0)
            answer = await asyncio.shield(method(*args, **kwargs))
            self._fuse.step()
            await asyncio.sleep(0)
            return answer

        return call


def fuse_line(line: Line, fuse: Fuse) -> None:
    passed = line._pass

    async def step() -> None:
        fuse.step()
        await passed()

    line._pass = step  # type: ignore[method-assign]


async def killed_at(step: int, *, freezes: bool, standby: bool) -> bool:
    """An agent dies, and its watcher at this request; returns whether it came to that."""
    fuse, options = Fuse(step), {"standby": "following"} if standby else {}
    async with house(idle=2) as here:
        first = Running(here, agent_name="support", rooms=FusedRooms(here, fuse), **options)
        fuse_line(first.process.line, fuse)
        fuse.kill = first.kill
        await asyncio.sleep(1)
        async with watching(here, **options):
            agent = await here.call("billing")
            await asyncio.sleep(7)
            fuse.armed = True
            if freezes:
                agent.freeze()
            else:
                agent.kill()
            await here.agent("billing", besides=agent, within=12)
            fuse.armed = False
            await asyncio.sleep(4)
            assert len(here.speaking("billing")) == 1
            assert len([one for one in here.live("billing") if one.state != "standby"]) == 1
            await first.stop()
            return fuse.burnt


@pytest.mark.parametrize("freezes", [False, True], ids=["killed", "frozen"])
@pytest.mark.parametrize("standby", [False, True], ids=["", "standby"])
def test_a_watcher_killed_at_any_request_leaves_one_agent_in_the_end(
    freezes: bool, standby: bool
) -> None:
    @virtual
    async def story() -> None:
        step = 1
        while await killed_at(step, freezes=freezes, standby=standby):
            step += 1
        assert step > 10

    story()


@virtual
async def test_a_watcher_that_is_cut_off_from_the_records_does_not_act() -> None:
    async with house() as here, watching(here) as first, watching(here) as second:
        agent = await here.call("billing")
        await asyncio.sleep(5)
        first.process.line.cut = True
        await asyncio.sleep(0.2)
        agent.kill()
        await replaced(here, "billing", agent, within=6)
        assert second.counts.acting
        assert len(here.dispatched) == 1
        first.process.line.cut = False
        await asyncio.sleep(5)
        assert not first.counts.acting
        assert first.counts.records_reached


@virtual
async def test_two_watchers_of_which_the_acting_one_is_slow_dispatch_once() -> None:
    """It is held up between its last look at its lease and the dispatch."""
    async with house() as here:
        slow = Running(here, agent_name="support")
        await asyncio.sleep(1)
        dispatch = here.dispatch

        async def held_up(*args: Any, **kwargs: Any) -> str:
            here.dispatch = dispatch  # type: ignore[method-assign]
            slow.process.line.cut = True
            await asyncio.sleep(6)
            raise StoreUnavailable("it was too late")

        async with watching(here):
            agent = await here.call("billing")
            await asyncio.sleep(5)
            here.dispatch = held_up  # type: ignore[method-assign]
            began = now()
            agent.kill()
            await here.agent("billing", besides=agent, within=12)
            assert now() - began < 5
            await asyncio.sleep(10)
            assert len(here.dispatched) == 1
            await slow.stop()
