"""Several server processes on one directory: killed, restarted, and asked in turn."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2 as httpx
import pytest

from recall_livekit.server.keys import open_keys

from .house import append, kind, lease, stream, turn, unit, until
from .process import ServerProcess, server_process

pytestmark = pytest.mark.anyio

GRACE = 0.3


def client_of(process: ServerProcess, key: str | None = None) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=process.url, headers=headers, timeout=10)


@asynccontextmanager
async def two_servers(
    directory: Path,
) -> AsyncIterator[tuple[ServerProcess, httpx.AsyncClient, httpx.AsyncClient]]:
    """Two processes on one directory: the first, and a client of each."""
    async with (
        server_process(directory) as a,
        server_process(directory) as b,
        client_of(a) as one,
        client_of(b) as other,
    ):
        yield a, one, other


async def turns(client: httpx.AsyncClient) -> list[str]:
    page = (await client.get("/v1/calls/room/turns")).json()
    return [one["content"] for one in page["turns"]]


async def test_what_was_leased_at_one_server_is_fenced_at_the_other(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (_a, one, other):
        body = lease(stream=True)
        assert (await one.post("/v1/calls/room/lease", json=body)).json()["epoch"] == 1
        assert (await append(other, unit("room", 1, turn("by the other door"))))[0]["ack"]
        assert (await append(one, unit("room", 2, turn("by its own"))))[0]["ack"]
        taken = lease("w2", attempt="a2", steal=True)
        assert (await other.post("/v1/calls/room/lease", json=taken)).json()["epoch"] == 2
        for client in (one, other):
            (answer,) = await append(client, unit("room", 3, turn("too late")))
            assert answer["problem"]["type"].endswith(":fenced")
            assert answer["problem"]["holder"] == "w2"
        (answer,) = await append(one, unit("room", 1, turn("now"), writer="w2", epoch=2))
        assert answer["ack"]
        assert await turns(other) == ["by the other door", "by its own", "now"]


async def test_a_stream_that_breaks_at_one_server_is_dead_at_the_other(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (_a, one, other):
        body = lease(ttl=60, stream=True)
        epoch = (await one.post("/v1/calls/room/lease", json=body)).json()["epoch"]
        async with stream(other, "room") as waiter:
            async with stream(one, "room", writer="w1", epoch=epoch) as holder:
                await holder.next()
                held = await other.post("/v1/calls/room/lease", json=lease("w2", attempt="a2"))
                assert kind(held) == "held"
            broke = time.monotonic()
            assert await waiter.next() == {"event": "broken", "epoch": epoch}
            assert time.monotonic() - broke < GRACE * 0.8
            assert await waiter.next() == {"event": "free", "liveness": "broken"}
            assert GRACE * 0.8 < time.monotonic() - broke < GRACE + 0.3
        taken = lease("w2", attempt="a3")
        assert (await other.post("/v1/calls/room/lease", json=taken)).json()["epoch"] == 2


async def test_a_holder_goes_to_another_server_when_its_own_is_killed(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (a, one, other):
        body = lease(ttl=60, stream=True)
        epoch = (await one.post("/v1/calls/room/lease", json=body)).json()["epoch"]
        async with stream(one, "room", writer="w1", epoch=epoch) as holder:
            await holder.next()
            await a.end(signal.SIGKILL)
        async with stream(other, "room", writer="w1", epoch=epoch) as holder:
            assert (await holder.next())["event"] == "open"
            await anyio.sleep(2 * GRACE)
            assert (await other.get("/v1/calls/room")).json()["liveness"] == "live"
            assert (await append(other, unit("room", 1, turn("still here"))))[0]["ack"]


async def test_what_was_acknowledged_survives_a_kill_of_the_server(tmp_path: Path) -> None:
    acknowledged: list[int] = []

    async def append_for_ever(client: httpx.AsyncClient) -> None:
        while True:
            (answer,) = await append(client, unit("room", len(acknowledged) + 1))
            acknowledged.append(answer["ack"]["last"])

    async def kill(process: ServerProcess) -> None:
        await until(lambda: len(acknowledged) >= 20)
        await process.end(signal.SIGKILL)

    async with (
        server_process(tmp_path) as first,
        client_of(first) as client,
        anyio.create_task_group() as tasks,
    ):
        await client.post("/v1/calls/room/lease", json=lease(ttl=60))
        tasks.start_soon(kill, first)
        with pytest.raises(httpx.HTTPError):
            await append_for_ever(client)
    async with server_process(tmp_path) as second, client_of(second) as client:
        number = len(acknowledged) + 1
        (answer,) = await append(client, unit("room", number))  # the one whose answer was lost
        assert answer["ack"]["last"] == number
        assert await turns(client) == [f"said {n}" for n in range(1, number + 1)]


async def test_a_server_ends_well_when_it_is_told_to(tmp_path: Path) -> None:
    made = await _key(tmp_path)
    async with server_process(tmp_path) as process, client_of(process, made) as client:
        call, spoken = "Grandma-Alice-4711", "my card is 4929"
        body = lease(stream=True, origin={"room_sid": "RM_9", "caller": "alice-4711"})
        epoch = (await client.post(f"/v1/calls/{call}/lease", json=body)).json()["epoch"]
        assert (await append(client, unit(call, 1, turn(spoken), epoch=epoch)))[0]["ack"]
        await client.post(f"/v1/calls/{call}/lease", json=lease("w2", attempt="a2"))
        await client.post("/v1/records", json={"units": spoken})
        async with stream(client, call, writer="w1", epoch=epoch) as holder:
            await holder.next()
        await anyio.sleep(2 * GRACE)
        async with stream(client, call, writer="w1", epoch=epoch) as holder:
            await holder.next()
            ended = await process.end(signal.SIGTERM)
            assert await holder.rest() == [{"event": "drain"}]
    assert ended == 0
    lines = [json.loads(line) for line in process.log.splitlines()]
    assert all({"at", "level", "logger", "message"} <= set(line) for line in lines)
    told = " ".join(line["message"] for line in lines)
    assert "epoch 1" in told
    assert "broke" in told
    for secret in (made, made[24:], "Alice", "alice", "4929", "RM_9"):
        assert secret not in process.log


async def _key(directory: Path) -> str:
    keys = open_keys(f"sqlite:///{directory}")
    made = await keys.create("default", "admin", "x")
    await keys.aclose()
    return made.key


async def test_a_key_that_is_made_beside_a_server_shuts_the_keyless_out(tmp_path: Path) -> None:
    async with server_process(tmp_path) as process, client_of(process) as anybody:
        assert (await anybody.get("/v1/calls/room")).status_code == 200
        made = await _key(tmp_path)
        async with client_of(process, made) as owner:
            assert (await owner.get("/v1/calls/room")).status_code == 200
        assert (await anybody.get("/v1/calls/room")).status_code == 401
