"""A store that hangs or fails: each request is answered within a bound, and holds up no other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from recall_livekit.server import operations, records
from recall_livekit.server.routes import ROUTES
from recall_livekit.stores.base import Store
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.faults import Faults, FaultyStore

from .house import House, append, house, kind, lease, unit, until

pytestmark = pytest.mark.anyio


class StuckCall(MemoryStore):
    """The call "stuck" hangs, as if a process were frozen in the middle of its commit."""

    stuck = False

    async def append(self, call: str, *what: Any) -> None:
        if self.stuck and call == "stuck":
            await anyio.sleep(60)
        await super().append(call, *what)


def opening(store: Store) -> Callable[[str, str], Store]:
    """Give the keys a good store of their own, and every namespace this one."""
    return lambda url, namespace: MemoryStore() if namespace == "recall-system" else store


async def test_one_stuck_call_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "UNIT_SECONDS", 0.3)
    store = StuckCall()
    async with house(tmp_path, opened=opening(store)) as home:
        client = await home.client("agent")
        calls = ("one", "stuck", "two")
        for call in calls:
            await client.post(f"/v1/calls/{call}/lease", json=lease())
        store.stuck = True
        began = time.monotonic()
        one, stuck, two = await append(client, *(unit(call) for call in calls))
        assert 0.25 < time.monotonic() - began < 1.5
        assert one["ack"]
        assert two["ack"]
        assert stuck["problem"]["type"].endswith(":store-unavailable")
        store.stuck = False
        (again,) = await append(client, unit("stuck"))
        assert again["ack"]["last"] == 1


async def test_units_are_worked_on_all_at_once(tmp_path: Path) -> None:
    class Slow(MemoryStore):
        slow = False

        async def append(self, *what: Any) -> None:
            await anyio.sleep(0.2 if self.slow else 0)
            await super().append(*what)

    store = Slow()
    async with house(tmp_path, opened=opening(store)) as home:
        client = await home.client("agent")
        for number in range(20):
            await client.post(f"/v1/calls/c{number}/lease", json=lease())
        store.slow = True
        began = time.monotonic()
        answers = await append(client, *(unit(f"c{number}") for number in range(20)))
        assert time.monotonic() - began < 2
        assert all(answer["ack"] for answer in answers)


async def test_a_store_that_fails_is_told_as_what_may_be_tried_again(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore(), Random(1))
    async with house(tmp_path, opened=opening(store)) as home:
        client = await home.client("admin")
        await client.post("/v1/calls/room/lease", json=lease())
        store.faults = Faults(drop_request=1.0)
        for path in ("", "/turns", "/entries"):
            response = await client.get(f"/v1/calls/room{path}")
            assert (response.status_code, kind(response)) == (503, "store-unavailable")
            assert response.headers["retry-after"] == "1"
        (answer,) = await append(client, unit("room"))
        assert answer["problem"]["type"].endswith(":store-unavailable")
        assert (await client.delete("/v1/calls/room")).status_code == 503


async def test_a_route_whose_store_hangs_is_answered_within_its_time(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore(), Random(1), timeout=60)
    async with house(tmp_path, opened=opening(store)) as home:
        route = next(route for route in ROUTES if route.name == "read_call")
        assert route.seconds == 5.0
        client = await home.client("read")
        store.freeze()
        began = time.monotonic()
        response = await client.get("/v1/calls/room")
        assert 4.5 < time.monotonic() - began < 7
        assert kind(response) == "store-unavailable"
        assert "ask again" in response.json()["detail"]


class Listed(MemoryStore):
    """Lists three calls, one of which is damaged."""

    async def read(self, call: str, *what: Any) -> Any:
        if call == "damaged":
            from recall_livekit.errors import StoreUnusable

            raise StoreUnusable("a person has to look")
        return await super().read(call, *what)

    async def calls(self) -> Any:
        for call in ("one", "damaged", "two"):
            yield call


async def test_a_call_that_cannot_be_read_hides_no_other_in_the_list(tmp_path: Path) -> None:
    async with house(tmp_path, opened=opening(Listed())) as home:
        client = await home.client("read")
        lines = (await client.get("/v1/calls")).text.splitlines()
        first, second, last = map(json.loads, lines)
        assert [first["call_id"], second["call_id"]] == ["one", "two"]
        assert last["type"].endswith(":store-unusable")


# --- ready ------------------------------------------------------------------------------------


async def test_a_server_is_ready_while_its_store_answers(
    home: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await home.client_with(None)
    assert (await client.get("/readyz")).json() == {"status": "ok"}
    monkeypatch.setattr(operations, "READY_SECONDS", 0.1)

    async def hang() -> None:
        await anyio.sleep(30)

    monkeypatch.setattr(home.keys, "look", hang)
    response = await client.get("/readyz")
    assert (response.status_code, kind(response)) == (503, "store-unavailable")
    assert (await client.get("/healthz")).status_code == 200


async def test_a_server_that_leaves_lives_and_is_not_ready(home: House) -> None:
    client = await home.client_with(None)
    home.server.drain()
    assert (await client.get("/healthz")).status_code == 200
    response = await client.get("/readyz")
    assert (response.status_code, kind(response)) == (503, "closed")


async def test_an_erasure_that_was_begun_is_finished_by_the_next_holder(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore(), Random(1))
    async with house(tmp_path, opened=opening(store)) as home:
        client = await home.client("admin")
        await client.post("/v1/calls/room/lease", json=lease())
        await append(client, unit("room"))
        engine = home.namespaces.engine("default")

        async def crash(call: str) -> None:
            raise RuntimeError("killed")

        finish, engine.finish_erasure = engine.finish_erasure, crash  # type: ignore[method-assign]
        assert (await client.delete("/v1/calls/room")).status_code == 500
        engine.finish_erasure = finish  # type: ignore[method-assign]
        bucket = store.store.bucket  # type: ignore[attr-defined]
        assert bucket.contains(b"said 1")
        body = lease("w2", attempt="a2", read_position=99)
        assert (await client.post("/v1/calls/room/lease", json=body)).status_code == 200
        await until(lambda: not bucket.contains(b"said 1"))
