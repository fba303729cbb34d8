"""The watcher, on real records and faithful rooms: each death, and what comes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recall_livekit.rooms.livekit_rooms import Member
from recall_livekit.rooms.orders import Orders
from recall_livekit.testing.leash import eventually

from .house import Agent
from .running import Running, house, now, replaced, virtual, watching

# --- deaths -------------------------------------------------------------------------------------


@virtual
async def test_a_killed_agent_is_replaced_at_once_with_what_the_first_one_was_told() -> None:
    async with house() as here, watching(here) as watch:
        agent = await here.call("billing", metadata='{"customer": 7}')
        await asyncio.sleep(10)
        agent.kill()
        assert await replaced(here, "billing", agent, within=2) < 0.5
        ((room, name, orders, metadata),) = here.dispatched
        assert (room, name, metadata) == ("billing", "support", '{"customer": 7}')
        assert orders is not None
        assert orders.resume
        assert orders.standby is None
        assert here.evicted == [agent.identity]
        assert watch.counts.joined == 1


@virtual
async def test_an_agent_that_lives_is_asked_and_left_alone() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(100)
        assert here.speaking("billing") == [agent]
        assert here.dispatched == []
        assert here.evicted == []
        assert 120 < here.asked.count(agent.identity) < 160


@virtual
async def test_a_frozen_agent_is_thrown_out_and_replaced_long_before_its_ttl() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(9.9)
        agent.freeze()
        assert await replaced(here, "billing", agent, within=5) < 2.0
        assert here.evicted == [agent.identity]


@virtual
async def test_a_frozen_agent_that_wakes_and_rejoins_is_thrown_out_again() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(5)
        agent.freeze()
        await replaced(here, "billing", agent, within=5)
        agent._serve = asyncio.Event().wait  # type: ignore[assignment, method-assign]
        agent.wake()
        agent._stop()
        agent.killed = False
        assert len(here.live("billing")) == 2
        await asyncio.sleep(1)
        assert here.evicted.count(agent.identity) == 2
        assert len(here.live("billing")) == 1
        assert len(here.dispatched) == 1


@virtual
async def test_an_agent_that_was_silent_and_is_dead_is_not_asked_for_longer() -> None:
    async with house() as here:
        agent = await here.call("billing")
        await asyncio.sleep(10)
        watch = Running(here, agent_name="support")  # the one before died with the agent's worker
        agent.frozen = True  # the lock falls only when the system has cleared the process away

        async def asked() -> bool:
            return agent.identity in here.asked

        await eventually(asked, within=5)
        agent.kill()
        assert await replaced(here, "billing", agent, within=5) < 0.8
        await watch.stop()


@virtual
async def test_an_agent_that_is_busy_for_a_moment_is_kept() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        for pause in range(70):
            await asyncio.sleep(1 + pause / 100)
            agent.frozen = True
            await asyncio.sleep(0.65)
            agent.frozen = False
        assert here.dispatched == []
        assert here.evicted == []


@virtual
async def test_an_agent_that_is_cut_off_from_the_records_keeps_its_call() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(5)
        agent.process.line.cut = True
        await asyncio.sleep(60)  # ten times its TTL
        assert here.dispatched == []
        assert here.evicted == []
        agent.kill()
        await replaced(here, "billing", agent, within=2)


@virtual
async def test_an_agent_that_is_cut_off_and_frozen_is_replaced_after_one_silence() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(5)
        agent.process.line.cut = True
        await asyncio.sleep(20)
        agent.freeze()
        assert await replaced(here, "billing", agent, within=3) < 1.5


@virtual
async def test_an_agent_that_died_before_it_had_the_call_is_replaced() -> None:
    async with house() as here, watching(here):
        first = await here.call("billing")
        await asyncio.sleep(5)
        first.kill()
        second = await here.agent("billing", besides=first, within=2)
        second.kill()
        await replaced(here, "billing", second, within=3)


@virtual
async def test_an_agent_that_does_not_answer_yet_is_not_thrown_out() -> None:
    async with house() as here, watching(here):
        first = await here.call("billing")
        await asyncio.sleep(5)

        def joined(agent: Agent) -> None:
            agent.frozen = True
            asyncio.get_running_loop().call_later(1.5, setattr, agent, "frozen", False)

        here.on_join = joined
        first.kill()
        await here.agent("billing", besides=first, within=4)
        await asyncio.sleep(5)
        assert len(here.dispatched) == 1
        assert here.evicted == [first.identity]


@virtual
async def test_one_on_its_way_in_is_asked_again_though_the_holder_is_dead() -> None:
    async with house() as here, watching(here):
        first = await here.call("billing")
        await asyncio.sleep(5)
        room = here.open["billing"]
        late = Agent(here, room, "AD_late", "support", Orders())
        late.ours = False  # it has not come as far as our agent
        room.members[late.identity] = Member(late.identity, "agent", here.clock.now(), "support")
        first.kill()
        await asyncio.sleep(1)
        assert here.asked.count(late.identity) >= 1
        room.agents[late.identity] = late  # it answers
        await asyncio.sleep(5)
        assert late.identity not in here.evicted
        assert here.dispatched == []


# --- whose rooms --------------------------------------------------------------------------------


@virtual
async def test_a_room_without_records_is_none_of_ours() -> None:
    async with house() as here, watching(here):
        here.calls("elsewhere")
        await asyncio.sleep(30)
        assert here.dispatched == []


@virtual
async def test_a_served_room_gets_the_agent_whose_first_dispatch_was_dropped() -> None:
    async with house() as here, watching(here, serve_rooms=lambda room: room.name == "mine"):
        here.calls("mine")
        here.calls("elsewhere")
        await here.agent("mine", within=10)
        assert [(room, orders) for room, _, orders, _ in here.dispatched] != []
        assert {room for room, *_ in here.dispatched} == {"mine"}
        (_, _, orders, _) = here.dispatched[0]
        assert orders is None or not orders.resume


@virtual
async def test_a_served_room_is_left_to_livekits_own_dispatch_first() -> None:
    async with house() as here, watching(here, serve_rooms=lambda _: True):
        for number in range(20):
            await here.call(f"room {number}")
            await asyncio.sleep(0.37)
        await asyncio.sleep(10)
        assert here.dispatched == []


@virtual
async def test_a_call_that_ended_gets_no_agent_though_its_room_is_served() -> None:
    async with house() as here, watching(here, serve_rooms=lambda _: True):
        agent = await here.call("billing")
        await asyncio.sleep(3)
        await agent._end("ended")
        await asyncio.sleep(30)
        assert here.dispatched == []


@virtual
async def test_an_erased_call_gets_no_agent_and_a_new_room_of_its_name_does() -> None:
    async with house() as here, watching(here, serve_rooms=lambda _: True):
        agent = await here.call("billing")
        await asyncio.sleep(3)
        await here.machine.process().recall.erase("billing")
        agent.kill()
        await asyncio.sleep(30)
        assert here.dispatched == []
        here.close("billing")
        here.calls("billing")
        await here.agent("billing", within=10)


@virtual
async def test_a_room_that_was_made_anew_is_another_call() -> None:
    async with house() as here, watching(here) as watch:
        agent = await here.call("billing")
        await asyncio.sleep(3)
        agent.kill()
        here.open.pop("billing")
        here.calls("billing", "somebody else")
        await asyncio.sleep(30)
        assert here.dispatched == []
        assert watch.counts.rooms == 1


@virtual
async def test_the_same_caller_in_a_new_room_goes_on_with_the_call() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(3)
        agent.kill()
        here.open.pop("billing")
        here.calls("billing", "caller")
        await here.agent("billing", within=8)


@virtual
async def test_no_dispatch_makes_a_room_that_is_gone() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(3)
        agent.kill()
        here.open.pop("billing")
        await asyncio.sleep(30)
        assert here.dispatched == []
        assert here.open == {}


@virtual
async def test_other_agents_in_the_room_are_neither_asked_for_nor_thrown_out() -> None:
    async with house() as here, watching(here):
        agent = await here.call("billing")
        scribe = Agent(here, here.open["billing"], "AD_x", "scribe", agent.orders)
        scribe.ours = False
        scribe._join()
        await asyncio.sleep(5)
        agent.kill()
        await replaced(here, "billing", agent, within=2)
        assert scribe.identity not in here.evicted
        scribe.freeze()
        await asyncio.sleep(10)
        assert scribe.identity not in here.evicted
        assert len(here.dispatched) == 1


# --- callers who go and come ---------------------------------------------------------------------


@virtual
async def test_a_caller_who_reloads_the_page_is_served_again() -> None:
    async with house() as here, watching(here) as watch:
        for _ in range(8):
            agent = await here.agent("billing") if here.open else await here.call("billing")
            await asyncio.sleep(3)
            here.hangs_up("billing")
            await asyncio.sleep(5)
            assert here.live("billing") == []
            here.calls("billing")
            await here.agent("billing", besides=agent, within=4)
        assert watch.counts.given_up == 0


@virtual
async def test_a_caller_who_leaves_while_an_agent_is_dispatched_leaves_nobody_behind() -> None:
    for moment in (0.02, 0.1, 0.2, 0.25, 0.3, 0.33, 0.35, 0.36, 0.38, 0.4):
        async with house() as here, watching(here):
            agent = await here.call("billing")
            await asyncio.sleep(5)
            agent.kill()
            await asyncio.sleep(moment)
            here.hangs_up("billing")
            await asyncio.sleep(4)
            assert here.live("billing") == []
            await asyncio.sleep(30)
            assert here.open == {}


@virtual
async def test_a_room_that_is_gone_while_it_waits_for_its_turn_is_not_made_again() -> None:
    async with house() as here, watching(here):
        agents = [await here.call(f"room {number}") for number in range(10)]
        await asyncio.sleep(5)
        for agent in agents:
            agent.kill()
        await asyncio.sleep(1)
        gone = [name for name in here.open if not here.live(name)][-4:]
        for name in gone:
            here.open.pop(name)
        await asyncio.sleep(30)
        assert set(gone).isdisjoint(here.open)
        assert all(len(here.speaking(name)) == 1 for name in here.open)


@virtual
async def test_who_needs_no_agent_any_more_when_its_turn_comes_gets_none() -> None:
    async with house() as here, watching(here) as watch:
        agents = [await here.call(f"room {number}") for number in range(10)]
        await asyncio.sleep(5)
        for agent in agents:
            agent.kill()
        await asyncio.sleep(0.2)
        waiting = [name for name in here.open if name not in {room for room, *_ in here.dispatched}]
        for name in waiting[:4]:
            here.hangs_up(name)
        fifth = Agent(here, here.open[waiting[4]], "AD_hand", "support", agents[0].orders)
        here.all.append(fifth)  # somebody dispatched by hand, and it has come
        fifth.begin()
        await asyncio.sleep(30)
        assert set(waiting[:5]).isdisjoint(room for room, *_ in here.dispatched)
        assert len(here.dispatched) == 5
        assert watch.counts.called_off == 5


# --- many ---------------------------------------------------------------------------------------


@virtual
async def test_a_dead_worker_with_thirty_calls_is_drained_one_after_the_other() -> None:
    async with house(idle=1) as here, watching(here) as watch:
        agents = [await here.call(f"room {number}") for number in range(30)]
        await asyncio.sleep(5)
        for agent in agents:
            agent.kill()
        began = now()
        for number, agent in enumerate(agents):
            await here.agent(f"room {number}", besides=agent, within=60)
        assert now() - began < 30 * 0.5
        await asyncio.sleep(5)
        assert all(len(here.speaking(f"room {number}")) == 1 for number in range(30))
        assert len(here.dispatched) == 30
        assert watch.counts.dropped == 0


@virtual
async def test_dispatches_that_are_dropped_are_made_again_until_all_have_an_agent() -> None:
    async with house(idle=0) as here, watching(here) as watch:
        here.idle = 1
        agents = [await here.call(f"room {number}") for number in range(5)]
        await asyncio.sleep(2)
        here.idle = 0  # no worker is there
        for agent in agents:
            agent.kill()
        await asyncio.sleep(30)
        assert watch.counts.dropped > 10
        assert watch.counts.waiting == 5
        here.idle = 1
        for number, agent in enumerate(agents):
            await here.agent(f"room {number}", besides=agent, within=30)
        await asyncio.sleep(5)
        assert all(len(here.speaking(f"room {number}")) == 1 for number in range(5))
        assert watch.counts.waiting == 0


@virtual
async def test_two_agent_names_do_not_wait_for_each_other() -> None:
    async with house(idle=2) as here, watching(here, agent_name=None):
        one = await here.call("one", agent_name="sales")
        two = await here.call("two", agent_name="support")
        await asyncio.sleep(5)
        one.kill()
        two.kill()
        assert await replaced(here, "two", two, within=1) < 0.5
        assert {(room, name) for room, name, *_ in here.dispatched} == {
            ("one", "sales"),
            ("two", "support"),
        }


@virtual
async def test_an_agent_that_is_slow_to_join_is_waited_for() -> None:
    """It took the call, so the dispatch was not dropped: it is only on its way."""
    async with house() as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(5)
        here.joins_after = 4.0
        agent.kill()
        await replaced(here, "billing", agent, within=8)
        await asyncio.sleep(5)
        assert len(here.dispatched) == 1
        assert len(here.live("billing")) == 1


@pytest.mark.parametrize(("slow", "tries"), [(4.0, 4), (9.0, 4)])
def test_an_entrypoint_that_is_slow_is_waited_for_in_the_end(slow: float, tries: int) -> None:
    """It took nothing yet, and LiveKit tells late that a worker took the job."""

    @virtual
    async def story() -> None:
        async with house() as here, watching(here):
            agent = await here.call("billing")
            await asyncio.sleep(5)
            here.starts_after = slow
            agent.kill()
            await replaced(here, "billing", agent, within=25)
            await asyncio.sleep(5)
            assert len(here.dispatched) == tries
            assert len(here.live("billing")) == 1

    story()


@virtual
async def test_a_live_worker_that_is_slow_to_join_has_its_lease_broken_at_times_only() -> None:
    """LiveKit itself dispatched it; whenever its lease is broken it takes the call again."""
    async with house() as here, watching(here) as watch:
        here.joins_after = 4.0
        agent = await here.call("billing")
        assert 1 <= watch.counts.leases_broken <= 2
        await asyncio.sleep(5)
        assert here.speaking("billing") == [agent]
        assert len(here.live("billing")) == 1
        assert here.evicted == []
        assert watch.counts.leases_broken <= 2


@virtual
async def test_a_lease_is_broken_by_what_was_read_of_it() -> None:
    async with house() as here, watching(here) as watch:
        agent = await here.call("billing")
        await asyncio.sleep(10)
        transport: Any = watch.process.recall._transport
        read, asked = transport.read, []
        acquire, breaking = transport.acquire, []

        async def reads(call: str, *args: Any) -> Any:
            asked.append((call, bool(args)))
            return await read(call, *args)

        async def acquires(call: str, request: Any) -> Any:
            breaking.append(request.read_position)
            return await acquire(call, request)

        transport.read, transport.acquire = reads, acquires
        agent.freeze()
        await replaced(here, "billing", agent, within=3)
        assert len(breaking) == 1
        assert breaking[0] > 0
        assert ("billing", False) not in asked  # only looks, which name the room


@virtual
async def test_an_erased_call_s_lease_is_broken_too_once_it_is_another_call() -> None:
    async with house() as here, watching(here):
        first = await here.call("billing")
        await asyncio.sleep(3)
        await here.machine.process().recall.erase("billing")
        first.kill()
        here.open.pop("billing")
        second = await here.call("billing")
        await asyncio.sleep(6)
        second.freeze()
        await replaced(here, "billing", second, within=4)
