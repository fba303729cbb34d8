"""Retention: what nobody has heard of for too long is erased, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import anyio
import httpx2 as httpx
import pytest

from recall_livekit.call_ids import WATCHER_CALL_ID, standby_call_id
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.server import retention
from recall_livekit.server.retention import keep_retention, sweep
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.clock import FakeClock
from recall_livekit.testing.faults import Faults, FaultyStore

from .house import House, append, house, lease, turn, unit

pytestmark = pytest.mark.anyio

DAY = 86400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(), Random(1))


@pytest.fixture
async def home(tmp_path: Path, clock: FakeClock, store: FaultyStore) -> AsyncIterator[House]:
    def opened(url: str, namespace: str) -> FaultyStore | MemoryStore:
        return store if namespace == "default" else MemoryStore()

    async with house(tmp_path, opened=opened, clock=clock) as one:
        yield one


async def record(client: httpx.AsyncClient, call: str, clock: FakeClock) -> None:
    """A call of one turn, said now, and handed over."""
    await client.post(f"/v1/calls/{call}/lease", json=lease())
    said = turn(f"said in {call}") | {"at": clock.now()}
    assert (await append(client, unit(call, 1, said)))[0]["ack"]
    await client.post(f"/v1/calls/{call}/lease/1/release", json={"writer": "w1"})


async def left(client: httpx.AsyncClient, *calls: str) -> list[str]:
    """The calls that still have their turn."""
    told = {call: (await client.get(f"/v1/calls/{call}/turns")).json() for call in calls}
    return [call for call in calls if told[call]["turns"]]


async def test_only_what_is_older_than_it_is_kept_is_erased(home: House, clock: FakeClock) -> None:
    client = await home.client("admin")
    await record(client, "old", clock)
    await client.post("/v1/calls/held/lease", json=lease(ttl=3600))
    await append(client, unit("held", 1, turn() | {"at": clock.now()}))
    clock.advance(3 * DAY)
    await client.put("/v1/calls/held/lease/1", json={"writer": "w1"})
    await record(client, "new", clock)
    clock.advance(60)
    assert await sweep(home.server, "default", 4 * DAY) == 0
    assert await sweep(home.server, "default", 2 * DAY) == 1
    assert await left(client, "old", "held", "new") == ["held", "new"]
    assert home.server.metrics.registry.get_sample_value("recall_calls_retired_total") == 1
    assert await sweep(home.server, "default", 2 * DAY) == 0


async def test_what_recall_keeps_for_itself_does_not_pile_up(
    home: House, clock: FakeClock, store: FaultyStore
) -> None:
    client = await home.client("admin")
    await record(client, "old", clock)
    engine = home.namespaces.engine("default")
    own = [standby_call_id("old"), standby_call_id("of a call without records"), WATCHER_CALL_ID]
    for call in own:
        sid = Origin(room_sid="RM_secret")
        await engine.acquire(call, Acquire(writer="w1", attempt="1", ttl=6.0, origin=sid))
        await engine.release(call, "w1", 1, "handover")
    clock.advance(2 * DAY)
    await engine.acquire(WATCHER_CALL_ID, Acquire(writer="w2", attempt="2", ttl=3600))
    assert await sweep(home.server, "default", DAY) == 1
    states = [(await engine.summary(call)).state for call in own]
    assert states == ["erased", "erased", "live"]
    positions = [(await engine.summary(call)).position for call in own]
    assert await sweep(home.server, "default", DAY) == 0
    assert [(await engine.summary(call)).position for call in own] == positions


async def test_a_call_that_somebody_has_is_never_erased(home: House, clock: FakeClock) -> None:
    client = await home.client("admin")
    await client.post("/v1/calls/held/lease", json=lease(ttl=3600))
    await append(client, unit("held"))
    clock.advance(600)
    assert await sweep(home.server, "default", 60) == 0
    assert await left(client, "held") == ["held"]


async def test_a_call_that_cannot_be_erased_now_is_left_to_the_next_sweep(
    home: House, clock: FakeClock, store: FaultyStore, caplog: pytest.LogCaptureFixture
) -> None:
    client = await home.client("admin")
    for call in ("room-one", "room-two"):
        await record(client, call, clock)
    clock.advance(3 * DAY)
    engine = home.namespaces.engine("default")
    erase, failed = engine.erase, list[str]()

    async def failing(call: str) -> None:
        if not failed:
            failed.append(call)
            store.faults = Faults(drop_request=1.0)
        try:
            await erase(call)
        finally:
            store.faults = Faults()

    engine.erase = failing  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO, "recall_livekit.server"):
        assert await sweep(home.server, "default", DAY) == 1
        assert len(await left(client, "room-one", "room-two")) == 1
        assert await sweep(home.server, "default", DAY) == 1
    assert await left(client, "room-one", "room-two") == []
    assert "1 calls erased, 1 failed" in caplog.text
    assert "room-one" not in caplog.text
    assert "room-two" not in caplog.text


async def test_an_erasure_that_was_begun_and_left_is_finished(
    home: House, clock: FakeClock, store: FaultyStore
) -> None:
    client = await home.client("admin")
    await record(client, "room", clock)
    engine = home.namespaces.engine("default")

    async def killed(call: str) -> None:
        raise RuntimeError

    finish, engine.finish_erasure = engine.finish_erasure, killed  # type: ignore[method-assign]
    await client.delete("/v1/calls/room")
    engine.finish_erasure = finish  # type: ignore[method-assign]
    bucket = store.store.bucket  # type: ignore[attr-defined]
    assert bucket.contains(b"said in room")
    await sweep(home.server, "default", DAY)
    assert not bucket.contains(b"said in room")


async def test_it_sweeps_every_hour_each_namespace_as_long_as_it_says(
    home: House, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[tuple[str, float]] = []

    async def noted(server: object, namespace: str, seconds: float) -> int:
        swept.append((namespace, seconds))
        if len(swept) == 1:
            raise RuntimeError("a fault ends no sweep")
        return 0

    monkeypatch.setattr(retention, "sweep", noted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_retention, home.server, {"one": DAY, "two": 2 * DAY})
        await anyio.wait_all_tasks_blocked()
        assert swept == []
        for hours in (1, 2):
            clock.advance(retention.SWEEP_SECONDS)
            await anyio.wait_all_tasks_blocked()
            assert swept == [("one", DAY), ("two", 2 * DAY)] * hours
        tasks.cancel_scope.cancel()
