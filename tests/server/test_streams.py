"""Streams on a real socket: a holder's sign of life, a waiter's news, entries as they come."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest

from recall_livekit import Settings
from recall_livekit.engine.engine import Engine
from recall_livekit.errors import StoreUnavailable
from recall_livekit.server.serve import Listening

from .house import append, client_of, kind, lease, served, stream, turn, unit, until

pytestmark = pytest.mark.anyio

GRACE = 0.3


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[Listening]:
    async with served(tmp_path / "records") as told:
        yield told


@pytest.fixture
async def client(listening: Listening) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(listening) as one:
        yield one


async def held(client: httpx.AsyncClient, writer: str = "w1", **more: Any) -> int:
    body = lease(writer, attempt=f"{writer}'s".replace("'", "-"), stream=True, **more)
    response = await client.post("/v1/calls/room/lease", json=body)
    assert response.status_code == 200, response.text
    return int(response.json()["epoch"])


async def liveness(client: httpx.AsyncClient) -> str:
    return str((await client.get("/v1/calls/room")).json()["liveness"])


async def sample(client: httpx.AsyncClient, name: str) -> float:
    lines = (await client.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.split()[-1])


async def becomes(client: httpx.AsyncClient, name: str, value: float) -> None:
    async def reached() -> bool:
        return await sample(client, name) == value

    await until(reached)


async def test_a_waiter_is_told_at_once_that_a_call_is_free(client: httpx.AsyncClient) -> None:
    async with stream(client, "room") as lines:
        assert await lines.rest() == [{"event": "free", "liveness": "free"}]


async def test_a_stream_is_alive_every_second(client: httpx.AsyncClient) -> None:
    epoch = await held(client)
    async with stream(client, "room", writer="w1", epoch=epoch) as lines:
        events = lines.response.aiter_lines()
        assert json.loads(await anext(events)) == {"event": "open", "epoch": epoch}
        began = time.monotonic()
        for _ in range(2):
            assert json.loads(await anext(events)) == {"event": "alive"}
        assert 1.5 < time.monotonic() - began < 4


async def test_a_stream_that_breaks_frees_the_call_after_the_grace(
    client: httpx.AsyncClient,
) -> None:
    epoch = await held(client, ttl=60)
    async with stream(client, "room") as waiter:
        async with stream(client, "room", writer="w1", epoch=epoch) as holder:
            assert (await holder.next())["event"] == "open"
            assert await liveness(client) == "live"
            assert await sample(client, 'recall_streams_open{kind="holder"}') == 1
        broke = time.monotonic()
        assert await waiter.next() == {"event": "broken", "epoch": epoch}
        assert time.monotonic() - broke < GRACE * 0.8
        assert await waiter.next() == {"event": "free", "liveness": "broken"}
        assert GRACE * 0.9 < time.monotonic() - broke < GRACE + 0.3
    await becomes(client, "recall_streams_broken_total", 1)
    await becomes(client, "recall_leases_lapsed_by_stream_total", 1)
    assert await sample(client, 'recall_streams_open{kind="holder"}') == 0
    assert await held(client, "w2") == epoch + 1


async def test_a_holder_that_comes_back_within_the_grace_keeps_its_call(
    client: httpx.AsyncClient,
) -> None:
    epoch = await held(client, ttl=60)
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        await holder.next()
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        assert (await holder.next())["event"] == "open"
        await becomes(client, "recall_streams_broken_total", 1)
        await anyio.sleep(2 * GRACE)
        assert await liveness(client) == "live"
        assert await sample(client, "recall_leases_lapsed_by_stream_total") == 0


async def test_a_waiter_is_told_that_a_holder_came_back(client: httpx.AsyncClient) -> None:
    epoch = await held(client, ttl=60)
    async with stream(client, "room") as waiter:
        for _ in range(2):
            async with stream(client, "room", writer="w1", epoch=epoch) as holder:
                await holder.next()
            assert await waiter.next() == {"event": "broken", "epoch": epoch}
            async with stream(client, "room", writer="w1", epoch=epoch) as holder:
                await holder.next()
                assert await waiter.next() == {"event": "open", "epoch": epoch}
            assert await waiter.next() == {"event": "broken", "epoch": epoch}
            await client.put(f"/v1/calls/room/lease/{epoch}", json={"writer": "w1"})
            assert await waiter.next() == {"event": "open", "epoch": epoch}
        assert await liveness(client) == "live"


async def test_a_waiter_that_comes_during_the_grace_is_told_at_once(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, Settings(disconnect_grace=2.0)) as told, client_of(told) as client:
        epoch = await held(client, ttl=60)
        async with stream(client, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
        await becomes(client, "recall_streams_broken_total", 1)
        began = time.monotonic()
        async with stream(client, "room") as waiter:
            assert await waiter.next() == {"event": "broken", "epoch": epoch}
            assert time.monotonic() - began < 1
            assert await waiter.next() == {"event": "free", "liveness": "broken"}


async def test_a_holder_is_told_that_its_call_was_taken(client: httpx.AsyncClient) -> None:
    epoch = await held(client)
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        await holder.next()
        began = time.monotonic()
        await held(client, "w2", steal=True)
        lost = {"event": "lost", "epoch": epoch + 1, "holder": "w2"}
        assert await holder.rest() == [lost]
        assert time.monotonic() - began < 1
    assert await sample(client, "recall_streams_broken_total") == 0


async def test_a_writer_that_lost_its_call_is_told_at_once(client: httpx.AsyncClient) -> None:
    epoch = await held(client)
    await held(client, "w2", steal=True)
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        assert await holder.rest() == [{"event": "lost", "epoch": epoch + 1, "holder": "w2"}]
    assert await liveness(client) == "live"


async def test_a_release_frees_a_waiter_at_once_and_breaks_nothing(
    client: httpx.AsyncClient,
) -> None:
    epoch = await held(client)
    async with (
        stream(client, "room", writer="w1", epoch=epoch) as holder,
        stream(client, "room") as waiter,
    ):
        await holder.next()
        began = time.monotonic()
        await client.post(f"/v1/calls/room/lease/{epoch}/release", json={"writer": "w1"})
        assert (await waiter.next())["liveness"] == "free"
        assert time.monotonic() - began < 0.3
        assert (await holder.next())["event"] == "lost"
    assert await sample(client, "recall_streams_broken_total") == 0


async def test_a_follower_is_told_every_entry_once_and_in_order(
    client: httpx.AsyncClient,
) -> None:
    epoch = await held(client)
    async with stream(client, "room", start=1) as follower:
        first = await follower.next()
        assert (first["position"], first["entry"]["kind"]) == (1, "lease")
        for number in range(1, 40):
            await append(client, unit("room", number, turn(f"turn {number}"), epoch=epoch))
        await client.post(f"/v1/calls/room/lease/{epoch}/release", json={"writer": "w1"})
        rest = [event for event in await follower.rest() if event["event"] != "alive"]
    assert [event["position"] for event in rest[:-1]] == list(range(2, 42))
    said = [event["entry"]["records"][0]["content"] for event in rest[:-2]]
    assert said == [f"turn {number}" for number in range(1, 40)]
    assert rest[-1] == {"event": "free", "liveness": "free"}


async def test_a_follower_that_is_slow_is_told_all_before_the_end(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await held(client)
    entries = Engine.entries

    async def slow(self: Engine, call: str, start: int, limit: int) -> object:
        await anyio.sleep(0.3)
        return await entries(self, call, start, limit)

    async with stream(client, "room", start=2) as follower:
        await anyio.sleep(0.1)
        monkeypatch.setattr(Engine, "entries", slow)
        await append(client, unit("room", epoch=epoch))
        await client.post(f"/v1/calls/room/lease/{epoch}/release", json={"writer": "w1"})
        told = [event["event"] for event in await follower.rest()]
    assert told == ["entry", "entry", "free"]


async def test_a_holder_may_follow_too(client: httpx.AsyncClient) -> None:
    epoch = await held(client)
    async with stream(client, "room", writer="w1", epoch=epoch, start=2) as holder:
        assert (await holder.next())["event"] == "open"
        await append(client, unit("room", epoch=epoch))
        event = await holder.next()
        assert (event["event"], event["position"]) == ("entry", 2)


@pytest.mark.parametrize("query", [{"writer": "w1"}, {"epoch": 1}, {"writer": "w 1", "epoch": 1}])
async def test_a_stream_that_is_asked_for_by_halves_is_refused(
    client: httpx.AsyncClient, query: dict[str, Any]
) -> None:
    response = await client.get("/v1/calls/room/stream", params=query)
    assert (response.status_code, kind(response)) == (400, "invalid-input")


async def test_a_stream_outlives_a_store_that_fails(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await held(client)
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        await holder.next()
        failures = 0
        wait_lost = Engine.wait_lost

        async def failing(self: Engine, call: str, writer: str, epoch: int) -> object:
            nonlocal failures
            failures += 1
            if failures < 3:
                raise StoreUnavailable("a bad day")
            return await wait_lost(self, call, writer, epoch)

        monkeypatch.setattr(Engine, "wait_lost", failing)
        async with stream(client, "room", writer="w1", epoch=epoch) as second:
            await second.next()
            await until(lambda: failures >= 3)
            await held(client, "w2", steal=True)
            assert [event["event"] for event in await second.rest() if "holder" in event] == [
                "lost"
            ]


async def test_a_stream_that_the_store_cannot_begin_is_a_problem(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await held(client)

    async def failing(*_: object) -> int:
        raise StoreUnavailable("a bad day")

    monkeypatch.setattr(Engine, "open_stream", failing)
    query: dict[str, Any] = {"writer": "w1", "epoch": epoch}
    response = await client.get("/v1/calls/room/stream", params=query)
    assert (response.status_code, kind(response)) == (503, "store-unavailable")


async def test_a_stream_that_breaks_while_the_store_fails_is_kept_in_the_end(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = await held(client, ttl=60)
    close_stream, failures = Engine.close_stream, 0

    async def failing(self: Engine, call: str, epoch: int, generation: int) -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StoreUnavailable("a bad day")
        await close_stream(self, call, epoch, generation)

    monkeypatch.setattr(Engine, "close_stream", failing)
    async with stream(client, "room", writer="w1", epoch=epoch) as holder:
        await holder.next()
    await becomes(client, "recall_leases_lapsed_by_stream_total", 1)
    assert failures == 2


async def test_a_server_that_leaves_tells_its_streams_and_breaks_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "records"
    settings = Settings(disconnect_grace=0.05)
    async with (
        served(directory, settings) as leaving,
        served(directory, settings) as staying,
        client_of(leaving) as one,
        client_of(staying) as other,
    ):
        epoch = await held(one, ttl=60)
        async with (
            stream(one, "room", writer="w1", epoch=epoch) as holder,
            stream(one, "room") as waiter,
        ):
            await holder.next()
            began = time.monotonic()
            with caplog.at_level(logging.INFO, "recall_livekit.server"):
                leaving.stop()
                assert await holder.rest() == [{"event": "drain"}]
                assert await waiter.rest() == [{"event": "drain"}]
            assert time.monotonic() - began < 1
        await anyio.sleep(0.3)
        assert await liveness(other) == "live"
        async with stream(other, "room", writer="w1", epoch=epoch) as holder:
            assert (await holder.next())["event"] == "open"
    assert "broke" not in caplog.text


async def test_a_stream_that_broke_just_before_the_server_left_is_kept_all_the_same(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "records"
    patient = Settings(disconnect_grace=30.0)  # this one takes nobody for dead by itself
    async with (
        served(directory) as leaving,
        served(directory, patient) as staying,
        client_of(leaving) as one,
        client_of(staying) as other,
    ):
        epoch = await held(one, ttl=60)
        async with stream(one, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
        await becomes(one, "recall_streams_broken_total", 1)
        leaving.stop()

        async def dead() -> bool:
            return await liveness(other) == "broken"

        await until(dead)


async def test_many_streams_of_one_process_end_together(client: httpx.AsyncClient) -> None:
    epoch = await held(client, ttl=60)
    freed: list[str] = []

    async def wait() -> None:
        async with stream(client, "room") as waiter:
            events = [event["event"] for event in await waiter.rest(10)]
            freed.append(events[-1])
            assert "broken" in events

    async with (
        anyio.create_task_group() as waiters,
        stream(client, "room", writer="w1", epoch=epoch) as holder,
    ):
        await holder.next()
        for _ in range(20):
            waiters.start_soon(wait)
        await becomes(client, 'recall_streams_open{kind="waiter"}', 20)
    assert freed == ["free"] * 20
    await becomes(client, 'recall_streams_open{kind="waiter"}', 0)
