"""Stealing one epoch's lease: what the engine answers to whoever saw that epoch's holder freeze."""

from __future__ import annotations

import pytest

from recall_livekit import Fenced, Held
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
CALL = "billing"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(clock: FakeClock) -> Engine:
    return Engine(MemoryStore(), clock)


def request(writer: str, sid: str = "RM_1", **more: object) -> Acquire:
    fields = {"writer": writer, "attempt": writer, "ttl": 6.0, "origin": Origin(room_sid=sid)}
    return Acquire.model_validate(fields | more)


@pytest.mark.parametrize("steal", [False, True])
async def test_a_live_holder_of_that_epoch_is_taken_over(engine: Engine, steal: bool) -> None:
    held = await engine.acquire(CALL, request("w1"))
    taken = await engine.acquire(CALL, request("w2", steal=steal, steal_epoch=held.epoch))
    assert (taken.epoch, taken.run, taken.resumed) == (held.epoch + 1, held.run, True)


@pytest.mark.parametrize("steal", [False, True])
async def test_a_newer_holder_is_not_even_if_it_is_dead(
    engine: Engine, clock: FakeClock, steal: bool
) -> None:
    held = await engine.acquire(CALL, request("w1"))
    newer = await engine.acquire(CALL, request("w2", steal=True))
    breaks = request("w3", steal=steal, steal_epoch=held.epoch)
    with pytest.raises(Held) as refused:
        await engine.acquire(CALL, breaks)
    assert (refused.value.holder, refused.value.epoch) == ("w2", newer.epoch)
    clock.advance(60)
    with pytest.raises(Held):
        await engine.acquire(CALL, breaks)
    await engine.release(CALL, "w2", newer.epoch, "handover")
    with pytest.raises(Fenced):
        await engine.acquire(CALL, breaks)


async def test_it_goes_on_in_the_run_of_the_holder_whatever_room_it_is_asked_from(
    engine: Engine, clock: FakeClock
) -> None:
    held = await engine.acquire(CALL, request("w1"))
    clock.advance(24 * 3600)
    taken = await engine.acquire(CALL, request("w2", "RM_2", steal_epoch=held.epoch))
    assert (taken.run, taken.resumed) == (held.run, True), "an older or another call: not its say"


async def test_the_same_attempt_has_the_same_grant(engine: Engine) -> None:
    held = await engine.acquire(CALL, request("w1"))
    breaks = request("w2", steal_epoch=held.epoch)
    grants = [await engine.acquire(CALL, breaks) for _ in range(3)]
    assert {grant.epoch for grant in grants} == {held.epoch + 1}
    await engine.release(CALL, "w2", held.epoch + 1, "handover")
    with pytest.raises(Fenced):
        await engine.acquire(CALL, breaks)
