"""What a client may send before and after it has shown a key: all of it is bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import pytest

from recall_livekit.models import RECORD_CHARS
from recall_livekit.server import protocol
from recall_livekit.server.keys import open_keys
from recall_livekit.wire import BODY_BYTES

from .house import Lines, kind, lease, served, turn, unit

pytestmark = pytest.mark.anyio


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))


async def closed(reader: asyncio.StreamReader) -> bytes:
    """Return what is still said before the connection is closed."""
    with anyio.fail_after(10):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("sent", [b"", b"GET /heal"])
async def test_a_connection_that_asks_nothing_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    async with served(tmp_path) as listening:
        reader, writer = await connected(listening.url)
        writer.write(sent)
        assert await closed(reader) == b""
        writer.close()


@pytest.mark.parametrize("line", [b"X: ", b"X-0: 1\r\nX-1: "])
async def test_a_head_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 60.0)  # it is the size that closes it
    async with served(tmp_path) as listening:
        reader, writer = await connected(listening.url)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + line)
        for _ in range(protocol.HEAD_BYTES // 1024 + 1):
            if writer.is_closing():
                break
            writer.write(b"a" * 1024)
            await asyncio.sleep(0)
        assert (await closed(reader))[:12] in (b"", b"HTTP/1.1 400")
        writer.close()


async def test_a_stream_and_a_slow_body_outlive_the_time_for_a_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    async with served(tmp_path) as listening, httpx.AsyncClient(base_url=listening.url) as client:
        assert (await client.post("/v1/calls/room/lease", json=lease())).status_code == 200
        params: dict[str, Any] = {"writer": "w1", "epoch": 1}
        async with client.stream("GET", "/v1/calls/room/stream", params=params) as response:
            assert (await Lines(response).next())["event"] == "open"
            await anyio.sleep(0.6)
            assert (await client.get("/v1/calls/room")).json()["liveness"] == "live"
            assert (await client.get("/healthz")).status_code == 200


async def bad(client: httpx.AsyncClient, method: str, path: str, content: bytes) -> str:
    headers = {"content-type": "application/json"}
    return kind(await client.request(method, path, content=content, headers=headers))


async def test_a_body_of_a_million_wrong_things_is_refused_at_the_first(tmp_path: Path) -> None:
    many = b"[" + b"0," * (BODY_BYTES // 2 - 100) + b"0]"
    async with served(tmp_path) as listening, httpx.AsyncClient(base_url=listening.url) as client:
        partials = b'{"writer":"w","run":1,"partials":' + many + b"}"
        with anyio.fail_after(5):
            assert await bad(client, "PUT", "/v1/calls/x/partials", partials) == "invalid-record"
            assert await bad(client, "POST", "/v1/records", b'{"units":' + many + b"}")
            lists = b'{"units":[' + b"{}," * 250_000 + b"{}]}"
            response = await client.post(
                "/v1/records", content=lists, headers={"content-type": "application/json"}
            )
            assert response.status_code == 413


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"units":["' + b"{[" * 150_000 + b'"]}', 200),
        (b'{"units":["' + rb"\"{[" * 150_000 + b'"]}', 200),
        (b'{"units":["",' + b"{}," * 250_000 + b'{},"\\\\"]}', 413),
        (b'{"units":["' + rb"\"{[" * 1_000_000, 422),
    ],
    ids=["in a text", "with quotes", "beside texts", "without an end"],
)
async def test_brackets_in_a_text_are_no_values(tmp_path: Path, body: bytes, status: int) -> None:
    async with served(tmp_path) as listening, httpx.AsyncClient(base_url=listening.url) as client:
        with anyio.fail_after(5):
            headers = {"content-type": "application/json"}
            response = await client.post("/v1/records", content=body, headers=headers)
    assert response.status_code == status


async def test_a_partial_is_no_longer_than_a_record(tmp_path: Path) -> None:
    said = {"role": "user", "text": "x" * (RECORD_CHARS + 200), "at": 1.0}
    async with served(tmp_path) as listening, httpx.AsyncClient(base_url=listening.url) as client:
        body = {"writer": "w1", "run": 1, "partials": [said]}
        assert kind(await client.put("/v1/calls/x/partials", json=body)) == "invalid-record"


async def test_a_problem_quotes_nothing_of_what_was_sent(tmp_path: Path) -> None:
    update = {"kind": "working_state", "at": 1.0, "changes": {"goal": ["4111 1111"]}}
    async with served(tmp_path) as listening, httpx.AsyncClient(base_url=listening.url) as client:
        await client.post("/v1/calls/room/lease", json=lease())
        response = await client.post("/v1/records", json={"units": [unit("room", 1, update)]})
        assert "goal" in response.text
        assert "4111" not in response.text
        never = {"units": [unit("room", 1, turn() | {"at": 1e999})]}
        content = str(never).replace("'", '"').replace("inf", "1e999").encode()
        headers = {"content-type": "application/json"}
        refused = await client.post("/v1/records", content=content, headers=headers)
        assert refused.json()["answers"][0]["problem"]["type"].endswith("invalid-record")


async def test_a_revoked_key_ends_the_streams_that_it_opened(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}")
    made = await keys.create("default", "agent", "x")
    headers = {"authorization": f"Bearer {made.key}"}
    async with (
        served(tmp_path) as listening,
        httpx.AsyncClient(base_url=listening.url, headers=headers) as client,
    ):
        await client.post("/v1/calls/room/lease", json=lease())
        params: dict[str, Any] = {"writer": "w1", "epoch": 1, "start": 0}
        async with client.stream("GET", "/v1/calls/room/stream", params=params) as response:
            lines = Lines(response)
            assert (await lines.next())["event"] == "open"
            await keys.revoke(made.info.key_id)
            told = await lines.rest(seconds=8)
        assert {event["event"] for event in told} <= {"alive", "entry"}
    await keys.aclose()
