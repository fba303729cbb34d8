"""LiveKit's server or the records cannot be reached for a while; signs are lost, doubled, wrong."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from recall_livekit.watcher.webhooks import Webhooks

from .hooks import KEY, SECRET, agent_left, signed
from .house import House
from .running import house, replaced, virtual, watching

LOG = "recall_livekit.watcher"


def lines(caplog: pytest.LogCaptureFixture, text: str) -> int:
    ours = (record.getMessage() for record in caplog.records if record.name == LOG)
    return sum(text in message for message in ours)


def test_livekits_server_is_away_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            live, dead = await here.call("live"), await here.call("dead")
            await asyncio.sleep(5)
            here.down = True
            await asyncio.sleep(1)
            dead.kill()
            await asyncio.sleep(60)
            assert here.evicted == []
            assert not watch.counts.rooms_reached
            assert watch.watcher.lacks
            here.down = False
            await replaced(here, "dead", dead, within=3)
            assert here.speaking("live") == [live]
            assert watch.counts.rooms_outages == 1
            assert watch.counts.rooms_reached
            assert not watch.watcher.lacks

    with caplog.at_level(logging.INFO, LOG):
        story()
    assert lines(caplog, "LiveKit's server cannot be reached") == 1
    assert lines(caplog, "LiveKit's server is back after 61") == 1


def test_the_records_are_away_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            live, dead = await here.call("live"), await here.call("dead")
            await asyncio.sleep(5)
            watch.process.line.cut = True
            await asyncio.sleep(1)
            dead.kill()
            await asyncio.sleep(60)
            assert here.dispatched == []
            assert not watch.counts.records_reached
            watch.process.line.cut = False
            await replaced(here, "dead", dead, within=5)
            assert here.speaking("live") == [live]
            assert watch.counts.records_outages == 1

    with caplog.at_level(logging.INFO, LOG):
        story()
    assert lines(caplog, "the records cannot be reached") == 1
    assert lines(caplog, "the records is back") == 0
    assert lines(caplog, "the records are back") == 1


@virtual
async def test_a_dispatch_whose_answer_is_lost_is_not_made_twice() -> None:
    async with house(idle=3) as here, watching(here):
        agent = await here.call("billing")
        await asyncio.sleep(5)
        dispatch = here.dispatch

        async def lost(*args: Any, **kwargs: Any) -> str:
            here.dispatch = dispatch  # type: ignore[method-assign]
            await dispatch(*args, **kwargs)
            here.down = True
            await dispatch(*args, **kwargs)
            raise AssertionError

        here.dispatch = lost  # type: ignore[method-assign]
        agent.kill()
        await asyncio.sleep(0.15)
        here.down = False
        await replaced(here, "billing", agent, within=3)
        assert len(here.dispatched) == 1


# --- signs --------------------------------------------------------------------------------------


@virtual
async def test_webhooks_doubled_wrong_and_late_change_nothing() -> None:
    async with house() as here, watching(here, webhooks=Webhooks(KEY, SECRET)) as watch:
        agent = await here.call("billing")
        await asyncio.sleep(5)
        for number in range(200):
            body = agent_left(agent.identity, event_id=f"EV_{number}", room="billing")
            assert watch.watcher.webhook(body, signed(body)).outcome == "accepted"
            assert watch.watcher.webhook(body, signed(body)).outcome == "doubled"
            assert watch.watcher.webhook(body, signed(body, secret="x" * 32)).outcome == "forged"
            await asyncio.sleep(0.01)
        assert here.speaking("billing") == [agent]
        assert here.dispatched == []
        assert here.evicted == []


@virtual
async def test_a_sign_of_a_room_that_is_not_known_yet_makes_it_known() -> None:
    """LiveKit's webhook is one: `list_interval` would find the room only later."""
    hooks = Webhooks(KEY, SECRET)
    async with house() as here, watching(here, serve_rooms=lambda _: True, webhooks=hooks) as watch:
        await asyncio.sleep(5.2)
        here.calls("billing")
        body = agent_left(room="billing")
        watch.watcher.webhook(body, signed(body))
        await asyncio.sleep(0.1)
        assert watch.counts.rooms == 1


@virtual
async def test_signs_of_rooms_that_are_not_there_cost_no_memory() -> None:
    async with house() as here, watching(here) as watch:
        for number in range(5000):
            watch.watcher.sign(f"room {number}")
        assert len(watch.watcher._signs) <= 1024
        await asyncio.sleep(1)
        assert watch.watcher._signs == {}
        assert watch.counts.rooms == 0
        here.calls("billing")
        await asyncio.sleep(6)
        assert watch.counts.rooms == 1


@virtual
async def test_nothing_is_kept_of_rooms_that_are_gone() -> None:
    async with house() as here, watching(here) as watch:
        for number in range(20):
            await here.call(f"room {number}")
        await asyncio.sleep(6)
        assert watch.counts.rooms == 20
        for number in range(20):
            here.close(f"room {number}")
        await asyncio.sleep(6)
        assert watch.counts.rooms == 0
        assert watch.watcher._watches == {}
        assert watch.watcher._turns._queues == {}


def test_a_fault_over_one_room_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            billing, sales = await here.call("billing"), await here.call("sales")
            await asyncio.sleep(6)
            members = here.members

            async def broken(room: str) -> Any:
                if room == "sales":
                    raise RuntimeError("a bug")
                return await members(room)

            here.members = broken  # type: ignore[method-assign]
            await asyncio.sleep(10)
            billing.kill()
            await replaced(here, "billing", billing, within=2)
            here.members = members  # type: ignore[method-assign]
            sales.kill()
            await replaced(here, "sales", sales, within=8)
            assert watch.counts.rooms == 2

    story()
    assert lines(caplog, "its watch failed") > 0


@virtual
async def test_no_more_rooms_are_watched_than_it_was_told() -> None:
    async with house() as here, watching(here, settings={"most_rooms": 3}) as watch:
        for number in range(5):
            here.calls(f"room {number}")
        await asyncio.sleep(11)
        assert watch.counts.rooms == 3


def test_the_log_tells_what_happened_and_names_no_room(caplog: pytest.LogCaptureFixture) -> None:
    async def frozen(here: House) -> None:
        agent = await here.call("billing of Jane Doe")
        await asyncio.sleep(5)
        agent.freeze()
        await replaced(here, "billing of Jane Doe", agent, within=4)

    @virtual
    async def story() -> None:
        async with house() as here, watching(here):
            await frozen(here)

    with caplog.at_level(logging.INFO, LOG):
        story()
    assert "Jane" not in caplog.text
    for line in ("does not answer, death 1", "was thrown out", "lease of epoch", "joined after 3"):
        assert lines(caplog, line) == 1, line
