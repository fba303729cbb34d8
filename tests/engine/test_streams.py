"""A holder's stream as its sign of life: what other servers on the same store make of it."""

from __future__ import annotations

import asyncio

import pytest

from recall_livekit import Fenced, Settings
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.liveness import Liveness
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
CALL = "billing"
TTL = 6.0
GRACE = 0.3
RETURN = 1.0
SETTINGS = Settings(disconnect_grace=GRACE, return_grace=RETURN)


class Servers:
    """Any number of servers, one store, one clock."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = FakeClock()

    def new(self) -> Engine:
        return Engine(self.store, self.clock, SETTINGS)

    async def held(self, engine: Engine) -> int:
        """The lease of a writer whose stream is not open yet."""
        origin = Origin(room_sid="RM_1")
        request = Acquire(writer="w1", attempt="1", ttl=TTL, origin=origin, stream=True)
        return (await engine.acquire(CALL, request)).epoch


async def liveness(engine: Engine) -> Liveness:
    return (await engine.read(CALL)).liveness


async def silent_for(engine: Engine, servers: Servers, seconds: float) -> Liveness:
    """What a waiter, who looks again and again, sees after so long."""
    for _ in range(20):
        await liveness(engine)
        servers.clock.advance(seconds / 20)
    return await liveness(engine)


async def test_a_stream_that_broke_is_dead_after_the_grace_at_every_server() -> None:
    servers = Servers()
    one, other = servers.new(), servers.new()
    epoch = await servers.held(one)
    generation = await one.open_stream(CALL, "w1", epoch)
    assert await liveness(other) is Liveness.LIVE
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, generation))
    await asyncio.sleep(0.01)
    assert await liveness(other) is Liveness.LIVE
    servers.clock.advance(GRACE - 0.01)
    assert await liveness(other) is Liveness.LIVE
    servers.clock.advance(0.02)
    assert await liveness(other) is Liveness.BROKEN
    await breaking
    assert await liveness(servers.new()) is Liveness.BROKEN, (
        "a newcomer need not wait once it is gone"
    )


async def test_a_holder_that_comes_back_within_the_grace_keeps_its_call() -> None:
    servers = Servers()
    one, other = servers.new(), servers.new()
    epoch = await servers.held(one)
    first = await one.open_stream(CALL, "w1", epoch)
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, first))
    await asyncio.sleep(0.01)
    assert await liveness(other) is Liveness.LIVE
    assert await other.open_stream(CALL, "w1", epoch) == first + 1
    servers.clock.advance(2 * GRACE)
    await breaking
    assert await liveness(other) is Liveness.LIVE
    assert await liveness(servers.new()) is Liveness.LIVE


async def test_who_watches_is_told_when_the_grace_begins_and_when_it_is_over() -> None:
    servers = Servers()
    one, other = servers.new(), servers.new()
    epoch = await servers.held(one)
    seen: list[tuple[int, bool]] = []

    async def changed(epoch: int, doubtful: bool) -> None:
        seen.append((epoch, doubtful))

    async def told(*expected: tuple[int, bool]) -> None:
        for _ in range(100):
            await asyncio.sleep(0.005)
            servers.clock.advance(0.001)
        assert seen == list(expected)

    first = await one.open_stream(CALL, "w1", epoch)
    watches = asyncio.create_task(other.watch_holder(CALL, changed))
    await told()
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, first))
    await told((epoch, True))
    second = await one.open_stream(CALL, "w1", epoch)
    await told((epoch, True), (epoch, False))
    servers.clock.advance(GRACE)
    await breaking
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, second))
    await told((epoch, True), (epoch, False), (epoch, True))
    assert not watches.done()
    servers.clock.advance(GRACE)
    await breaking
    servers.clock.advance(GRACE)
    assert await asyncio.wait_for(watches, 5) is Liveness.BROKEN


async def test_a_release_in_the_grace_is_no_doubt_but_an_end() -> None:
    servers = Servers()
    one = servers.new()
    epoch = await servers.held(one)
    doubts: list[int] = []
    generation = await one.open_stream(CALL, "w1", epoch)
    waits = asyncio.create_task(one.wait_free(CALL, doubt=lambda: doubts.append(1)))
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, generation))
    await asyncio.sleep(0.05)
    assert doubts == [1]
    await one.release(CALL, "w1", epoch, "handover")
    assert await asyncio.wait_for(waits, 5) is Liveness.FREE
    servers.clock.advance(GRACE)
    await breaking


async def test_a_renewal_after_the_break_is_a_sign_of_life() -> None:
    servers = Servers()
    one = servers.new()
    epoch = await servers.held(one)
    generation = await one.open_stream(CALL, "w1", epoch)
    breaking = asyncio.create_task(one.close_stream(CALL, epoch, generation))
    await asyncio.sleep(0.01)
    servers.clock.advance(2 * GRACE)
    await breaking
    assert await liveness(one) is Liveness.BROKEN
    await one.renew(CALL, "w1", epoch)
    assert await liveness(one) is Liveness.LIVE
    assert await liveness(servers.new()) is Liveness.LIVE


async def test_a_server_that_was_away_gives_its_holder_time_to_come_back() -> None:
    servers = Servers()
    before = servers.new()
    epoch = await servers.held(before)
    await before.open_stream(CALL, "w1", epoch)
    servers.clock.advance(10 * TTL)
    after = servers.new()
    assert await liveness(after) is Liveness.LIVE
    servers.clock.advance(RETURN - 0.01)
    await after.open_stream(CALL, "w1", epoch)
    assert await liveness(after) is Liveness.LIVE
    assert await silent_for(after, servers, TTL - 0.1) is Liveness.LIVE, "it came back: it lives"
    assert await silent_for(after, servers, 0.2) is Liveness.LAPSED


async def test_a_server_that_stood_still_reads_what_came_meanwhile_before_it_judges() -> None:
    servers = Servers()
    one = servers.new()
    epoch = await servers.held(one)
    await one.open_stream(CALL, "w1", epoch)
    assert await liveness(one) is Liveness.LIVE
    servers.clock.advance(1.0)
    await one.renew(CALL, "w1", epoch)
    assert await liveness(one) is Liveness.LIVE
    servers.clock.advance(2 * TTL)
    assert await silent_for(one, servers, RETURN - 0.2) is Liveness.LIVE
    assert await silent_for(one, servers, 0.4) is Liveness.LAPSED


async def test_one_that_does_not_come_back_has_no_more_than_that() -> None:
    servers = Servers()
    before = servers.new()
    epoch = await servers.held(before)
    await before.open_stream(CALL, "w1", epoch)
    servers.clock.advance(10 * TTL)
    after = servers.new()
    assert await liveness(after) is Liveness.LIVE
    servers.clock.advance(RETURN)
    assert await liveness(after) is Liveness.LAPSED


async def test_who_lost_the_lease_opens_no_stream() -> None:
    servers = Servers()
    one = servers.new()
    epoch = await servers.held(one)
    await one.release(CALL, "w1", epoch, "handover")
    with pytest.raises(Fenced):
        await one.open_stream(CALL, "w1", epoch)
