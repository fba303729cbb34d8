"""The table of routes against roles, namespaces, and a server that has no key yet."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from recall_livekit.server.keys import Role
from recall_livekit.server.route import Nothing, Route
from recall_livekit.server.routes import ROUTES

from .house import House, Json, append, house, kind, lease, turn, unit

pytestmark = pytest.mark.anyio

SECRET = "nobody else's business"
BODIES: dict[str, Callable[[str], Json]] = {
    "acquire_lease": lambda writer: lease(writer, attempt=writer),
    "renew_lease": lambda writer: {"writer": "w1"},
    "release_lease": lambda writer: {"writer": "w1"},
    "open_run": lambda writer: lease(writer, attempt=writer),
    "append_records": lambda writer: {"units": [unit("room", 2)]},
    "put_partials": lambda writer: {"writer": "w1", "run": 1, "partials": []},
    "put_output": lambda writer: {"writer": "w1", "counter": 0, "text": "theirs"},
}
KEYED = [route for route in ROUTES if route.role is not None]
ids = [route.name for route in KEYED]


async def ask(
    home: House, client: httpx.AsyncClient, route: Route[Any, Any], writer: str
) -> httpx.Response:
    """Ask for the call "room" at epoch 1; a holder's stream is asked for as w1."""
    if route.name == "call_events":
        home.server.drain()  # else it has no end
    path = route.path.format(call_id="room", epoch=1, anchor=0, counter=0)
    query: dict[str, Any] = {"writer": "w1", "epoch": 1} if route.name == "stream_call" else {}
    body = BODIES[route.name](writer) if route.body is not Nothing else None
    return await client.request(route.method, path, json=body, params=query)


def test_every_route_of_the_api_needs_a_key() -> None:
    free = {route.path for route in ROUTES if route.role is None}
    assert free == {"/healthz", "/readyz", "/metrics", "/openapi.json"}


async def position(client: httpx.AsyncClient) -> int:
    return int((await client.get("/v1/calls/room")).json()["position"])


@pytest.mark.parametrize("route", KEYED, ids=ids)
async def test_no_route_shows_or_touches_another_namespace(
    home: House, route: Route[Any, Any]
) -> None:
    owner, stranger = await home.client("admin", "owner"), await home.client("admin", "stranger")
    assert (await owner.post("/v1/calls/room/lease", json=lease())).status_code == 200
    assert (await append(owner, unit("room", 1, turn(SECRET))))[0]["ack"]
    kept = {"writer": "w1", "counter": 0, "text": SECRET}
    assert (await owner.put("/v1/calls/room/outputs", json=kept)).json() == {"ref": "0/0"}
    before = (await owner.get("/v1/calls/room")).json()
    told = await ask(home, stranger, route, "w2")
    assert SECRET not in told.text
    assert "w1" not in told.text
    after = (await owner.get("/v1/calls/room")).json()
    assert after.pop("silence") >= before.pop("silence"), "time goes by"
    assert after == before
    assert (await append(owner, unit("room", 2)))[0]["ack"]["last"] == 2
    assert (await owner.get("/v1/calls/room/outputs/0/0")).json()["text"] == SECRET


@pytest.mark.parametrize("role", ["read", "agent", "admin"])
@pytest.mark.parametrize("route", KEYED, ids=ids)
async def test_a_role_is_let_through_to_what_it_may(
    home: House, route: Route[Any, Any], role: Role
) -> None:
    holds = route.name == "stream_call"  # with a writer: it is the holder's
    allowed = {
        "read": route.role == "read" and not holds,
        "agent": route.role in ("read", "agent"),
        "admin": True,
    }
    response = await ask(home, await home.client(role), route, "w1")
    if allowed[role]:
        assert response.status_code != 403
    else:
        assert (response.status_code, kind(response)) == (403, "role-too-low")


async def test_erasing_is_an_operator_s_and_reading_changes_nothing(home: House) -> None:
    roles = {route.name: route.role for route in ROUTES}
    assert roles["erase_call"] == "admin"
    for route in KEYED:
        assert (route.role == "read") == (route.method == "GET")
        assert (route.role == "admin") == (route.method == "DELETE")


# --- no key yet -------------------------------------------------------------------------------


async def test_a_server_of_others_without_keys_lets_nobody_in(tmp_path: Path) -> None:
    async with house(tmp_path, loopback=False) as home:
        response = await (await home.client_with(None)).get("/v1/calls/room")
        assert response.status_code == 401


async def test_on_loopback_no_key_is_needed_until_one_was_made(tmp_path: Path) -> None:
    async with house(tmp_path, loopback=True) as home:
        anybody = await home.client_with(None)
        assert (await anybody.post("/v1/calls/room/lease", json=lease())).status_code == 200
        assert (await anybody.delete("/v1/calls/room")).status_code == 204
        stranger = await home.client_with("recall_" + "0" * 16 + "_" + "0" * 43 + ".default")
        assert (await stranger.get("/v1/calls/room")).status_code == 401
        made = await home.keys.create("default", "agent", "the first")
        assert (await anybody.get("/v1/calls/room")).status_code == 401
        owner = await home.client_with(made.key)
        assert (await owner.get("/v1/calls/room")).json()["position"] > 0
        await home.keys.revoke(made.info.key_id)
        assert (await anybody.get("/v1/calls/room")).status_code == 401


async def test_a_page_in_a_browser_of_this_machine_is_no_program_of_it(tmp_path: Path) -> None:
    async with house(tmp_path, loopback=True, hosts=("127.0.0.1", "localhost")) as home:
        for headers, status in (
            ({}, 200),
            ({"host": "localhost:8480"}, 200),
            ({"host": "rebound.example:8480"}, 401),
            ({"origin": "https://elsewhere.example"}, 401),
        ):
            client = await home.client_with(None, **headers)
            assert (await client.get("/v1/calls/room")).status_code == status, headers
        key = await home.key()
        behind_proxy = await home.client_with(key, host="recall.example")
        assert (await behind_proxy.get("/v1/calls/room")).status_code == 200


async def test_that_there_is_no_key_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from .house import client_of, served

    with caplog.at_level(logging.WARNING, "recall_livekit.server"):
        async with served(tmp_path) as listening, client_of(listening) as client:
            for _ in range(3):
                assert (await client.get("/v1/calls/room")).status_code == 200
    said = [record for record in caplog.records if "no key was made" in record.message]
    assert len(said) == 1
