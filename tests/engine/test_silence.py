"""How long nobody was there for the caller: measured, whatever the clocks of the workers say."""

from __future__ import annotations

import time

import anyio
import pytest

from recall_livekit import Recall
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.silence import silence_at
from recall_livekit.models import Turn
from recall_livekit.seams import SystemClock
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.clock import FakeClock

from ..conftest import OpenRecall

pytestmark = pytest.mark.anyio
ROOM = "a call"
HOUR = 3600.0


@pytest.mark.parametrize(
    ("recorded", "said", "silence"),
    [
        (0.0, [], None),
        (0.0, [90.0], None),
        (90.0, [], 10.0),
        (90.0, [97.0, 95.0], 3.0),
        (90.0, [0.0], 10.0),
        (90.0, [100.0 + HOUR], 10.0),
        (90.0, [100.0 + HOUR, 98.0], 2.0),
        (100.0 + HOUR, [98.0], 0.0),
    ],
)
def test_signs_that_come_from_the_future_are_not_believed(
    recorded: float, said: list[float], silence: float | None
) -> None:
    assert silence_at(100.0, recorded, said) == silence


async def die_speaking(store: MemoryStore, clock: FakeClock, at: float) -> None:
    """A worker takes the call, says something a second later, and is never heard of again."""
    engine = Engine(store, clock)
    grant = await engine.acquire(ROOM, Acquire(writer="dead", attempt="1", ttl=6.0))
    clock.advance(1.0)
    turn = Turn(role="user", content="hello", at=at)
    await engine.append(ROOM, "dead", 1, [turn], grant.epoch)


@pytest.mark.parametrize("skew", [0.0, -HOUR, HOUR])
async def test_a_dead_workers_clock_does_not_count(skew: float) -> None:
    """What it said is stamped by its own clock, its lease by that of the records."""
    store, clock = MemoryStore(), FakeClock()
    await die_speaking(store, clock, at=clock.now() + 1.0 + skew)
    clock.advance(9.0)
    recall = Recall(store, clock=clock)
    reading = await recall._transport.read(ROOM)
    assert reading.silence == pytest.approx(9.0 if skew == 0 else 10.0)
    call = recall.resume(ROOM)
    call.start()
    assert await call.ready(5)
    assert call.silence == reading.silence
    clock.advance(2.0)
    assert call.silence == pytest.approx((reading.silence or 0.0) + 2.0), "counted on its own clock"
    await call.aclose()
    await recall.aclose()


async def test_of_a_new_call_it_is_not_known() -> None:
    async with Recall(MemoryStore()) as recall, recall.resume(ROOM) as call:
        assert call.silence is None


async def test_a_call_that_was_given_back_is_silent_since_then() -> None:
    clock = FakeClock()
    recall = Recall(MemoryStore(), clock=clock)
    first = recall.resume(ROOM)
    first.start()
    assert await first.holding(5)
    first.record_turn("user", "hello")
    assert await first.flush(5)
    clock.advance(60.0)
    await first.aclose("left")
    clock.advance(5.0)
    second = recall.resume(ROOM)
    second.start()
    assert await second.holding(5)
    assert second.silence == pytest.approx(5.0)
    await second.aclose()
    await recall.aclose()


async def test_a_standby_counts_from_when_it_was_needed_not_from_when_it_came() -> None:
    store = MemoryStore()
    async with Recall(store) as one, Recall(store) as other:
        first = one.resume(ROOM)
        async with first:
            first.record_turn("user", "hello")
            assert await first.flush(5)
            second = other.resume(ROOM)
            second.start()
            assert await second.ready(5)
            await anyio.sleep(1.5)
        assert await second.holding(10)
        assert second.silence is not None
        assert second.silence < 1.2
        await second.aclose()


async def test_an_erased_call_has_none() -> None:
    async with Recall(MemoryStore()) as recall:
        async with recall.resume(ROOM) as call:
            call.record_turn("user", "hello")
        await recall.erase(ROOM)
        assert (await recall._transport.read(ROOM)).silence is None


class Skewed(SystemClock):
    """A worker whose wall clock is wrong."""

    def __init__(self, skew: float) -> None:
        self.skew = skew

    def now(self) -> float:
        return super().now() + self.skew


@pytest.mark.over_http
async def test_a_servers_clock_counts_not_those_of_its_workers(open_recall: OpenRecall) -> None:
    ahead, behind = open_recall(), open_recall()
    ahead._clock, behind._clock = Skewed(HOUR), Skewed(-HOUR)
    began = time.monotonic()
    async with ahead.resume(ROOM) as first:
        first.record_turn("user", "hello")
        assert await first.flush(5)
    async with behind.resume(ROOM) as second:
        assert second.silence is not None
        assert 0 <= second.silence <= time.monotonic() - began
