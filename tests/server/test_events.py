"""GET /v1/events on a real socket: what happens to leases, for whoever listens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2 as httpx
import pytest

from recall_livekit.server import news as module
from recall_livekit.server.keys import open_keys
from recall_livekit.server.metrics import Metrics
from recall_livekit.server.news import News
from recall_livekit.server.serve import Listening

from .house import House, Json, Lines, client_of, lease, served, stream, until
from .test_streams import becomes, held

pytestmark = pytest.mark.anyio

GRACE = 0.3
MISSED = {"event": "missed"}


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[Listening]:
    async with served(tmp_path / "records") as told:
        yield told


@pytest.fixture
async def client(listening: Listening) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(listening) as one:
        yield one


@asynccontextmanager
async def events(client: httpx.AsyncClient) -> AsyncIterator[Lines]:
    """The stream, once what came before it was said to be missed."""
    async with client.stream("GET", "/v1/events") as response:
        assert response.status_code == 200, await response.aread()
        lines = Lines(response)
        assert await lines.next() == MISSED
        yield lines


def event(kind: str, epoch: int, call: str = "room", **more: str) -> Json:
    return {"event": kind, "call_id": call, "epoch": epoch, **more}


async def test_what_happens_to_a_lease_is_told_as_it_happens(client: httpx.AsyncClient) -> None:
    async with events(client) as lines:
        epoch = await held(client, ttl=60)
        assert await lines.next() == event("taken", epoch)
        async with stream(client, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
        broke = time.monotonic()
        assert await lines.next() == event("broken", epoch)
        assert time.monotonic() - broke < GRACE * 0.8
        assert await lines.next() == event("lapsed", epoch)
        assert GRACE * 0.9 < time.monotonic() - broke < GRACE + 0.4
        assert await held(client, "w2") == epoch + 1
        assert await lines.next() == event("taken", epoch + 1)
        body = {"writer": "w2", "outcome": "left"}
        await client.post(f"/v1/calls/room/lease/{epoch + 1}/release", json=body)
        assert await lines.next() == event("released", epoch + 1, outcome="left")
    await becomes(client, 'recall_call_events_total{event="taken"}', 2)
    await becomes(client, 'recall_streams_open{kind="listener"}', 0)


async def test_a_holder_that_came_back_did_not_lapse(client: httpx.AsyncClient) -> None:
    epoch = await held(client, ttl=60)
    async with events(client) as lines:
        async with stream(client, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
        assert await lines.next() == event("broken", epoch)
        async with stream(client, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
            await anyio.sleep(2 * GRACE)
            await held(client, "w2", steal=True)
            assert await lines.next() == event("taken", epoch + 1)


async def test_a_grant_whose_answer_was_lost_is_told_once(client: httpx.AsyncClient) -> None:
    async with events(client) as lines:
        for _ in range(3):
            assert (await client.post("/v1/calls/room/lease", json=lease())).status_code == 200
        assert (await client.post("/v1/calls/other/lease", json=lease())).status_code == 200
        assert await lines.next() == event("taken", 1)
        assert await lines.next() == event("taken", 1, "other")


async def test_a_listener_is_told_every_second_that_it_is_heard(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/v1/events") as response:
        lines = response.aiter_lines()
        began = time.monotonic()
        told = [json.loads(await anext(lines)) for _ in range(3)]
        assert told == [MISSED, {"event": "alive"}, {"event": "alive"}]
        assert 1.5 < time.monotonic() - began < 4


async def test_a_namespace_hears_of_itself_alone_and_a_reader_may_listen(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}")
    made = {
        (namespace, role): (await keys.create(namespace, role, "x")).key  # type: ignore[arg-type]
        for namespace, role in (("one", "agent"), ("one", "read"), ("two", "agent"))
    }
    await keys.aclose()
    async with (
        served(tmp_path) as told,
        client_of(told, made["one", "agent"]) as one,
        client_of(told, made["one", "read"]) as reader,
        client_of(told, made["two", "agent"]) as two,
        client_of(told, "recall_nobody") as nobody,
    ):
        assert (await nobody.get("/v1/events")).status_code == 401
        async with events(reader) as ours, events(two) as theirs:
            await one.post("/v1/calls/ours/lease", json=lease())
            await two.post("/v1/calls/theirs/lease", json=lease())
            assert await ours.next() == event("taken", 1, "ours")
            assert await theirs.next() == event("taken", 1, "theirs")


async def test_a_revoked_key_hears_nothing_more(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}")
    made = await keys.create("default", "agent", "x")
    async with (
        served(tmp_path) as told,
        client_of(told, made.key) as client,
        events(client) as lines,
    ):
        await keys.revoke(made.info.key_id)
        assert {line["event"] for line in await lines.rest(8)} <= {"alive"}
    await keys.aclose()


async def test_a_server_that_leaves_says_so(
    listening: Listening, client: httpx.AsyncClient
) -> None:
    async with events(client) as lines:
        listening.stop()
        assert await lines.rest() == [{"event": "drain"}]


async def test_a_listener_that_does_not_read_hinders_nobody_and_is_told(home: House) -> None:
    sent: list[Json] = []
    reads, leaves = anyio.Event(), anyio.Event()

    async def receive() -> Json:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        if body := message.get("body"):
            sent.append(json.loads(body))
            await reads.wait()

    headers = [(b"authorization", f"Bearer {await home.key('read')}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "headers": headers}
    news = home.server.news("default")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(home.app, scope | {"query_string": b""}, receive, send)  # type: ignore[arg-type]
        await until(lambda: sent == [MISSED])
        began = time.monotonic()
        for epoch in range(1, module.QUEUED + 3):
            news.tell("taken", "room", epoch)
        assert time.monotonic() - began < 1
        reads.set()
        last = module.QUEUED + 2
        await until(lambda: sent[-1] == event("taken", last))
        told = [line for line in sent if line["event"] != "alive"]
        assert told == [MISSED, MISSED, event("taken", last - 1), event("taken", last)]
        leaves.set()
    assert not news._ears


async def test_a_queue_that_is_full_forgets_and_says_so() -> None:
    metrics = Metrics()
    news = News(metrics)
    news.tell("taken", "before", 1)
    with news.listening() as ear:
        assert (await ear.next()).event == "missed", "it begins with what it cannot know"
        for epoch in range(1, module.QUEUED + 3):
            news.tell("taken", "room", epoch)
        told = [await ear.next() for _ in range(3)]
        assert [(one.event, one.epoch) for one in told] == [
            ("missed", 0),
            ("taken", module.QUEUED + 1),
            ("taken", module.QUEUED + 2),
        ]
    assert metrics.registry.get_sample_value("recall_events_missed_total") == 1
    with news.listening() as ear:
        await ear.next()
        with anyio.move_on_after(0.05):
            await ear.next()
            pytest.fail("it heard of what was before")
        news.tell("released", "room", 9, "ended")
        assert (await ear.next()).outcome == "ended"
    await until(lambda: not news._ears)
