"""Keys: made once, kept as a hash, seen by every process, and revoked for all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from recall_livekit.errors import InvalidSettings, KeyRefused, StoreUnavailable
from recall_livekit.server import keys as keys_module
from recall_livekit.server.keys import KNOWN_FOR, STALE, UNKNOWN_KEY_PAUSE, Keys, open_keys
from recall_livekit.stores.memory import MemoryBucket, MemoryStore
from recall_livekit.testing.clock import FakeClock

from .house import House, append, kind, lease, problem, unit

pytestmark = pytest.mark.anyio


NOBODYS = "recall_" + "f" * 16 + "_" + "0" * 43 + ".acme"


def contains(directory: Path, text: str) -> bool:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return any(text.encode() in path.read_bytes() for path in files)


class Process:
    """What one server process knows of the keys that it shares with others."""

    def __init__(self, bucket: MemoryBucket, name: str = "") -> None:
        self.clock = FakeClock(name=name)
        self.store = CountingStore(bucket)
        self.keys = Keys(self.store, self.clock)


class CountingStore(MemoryStore):
    reads = 0
    down = False

    async def read(self, *what: Any) -> Any:
        self.reads += 1
        if self.down:
            raise StoreUnavailable("down")
        return await super().read(*what)


async def test_a_key_opens_its_namespace_with_its_role() -> None:
    process = Process(MemoryBucket())
    made = await process.keys.create("acme", "agent", "the night shift")
    info = await process.keys.check(made.key)
    assert (info.namespace, info.role, info.name) == ("acme", "agent", "the night shift")
    assert info == made.info
    assert await process.keys.listed() == (info,)


async def test_the_secret_is_neither_stored_nor_shown(tmp_path: Path) -> None:
    keys = open_keys(f"sqlite:///{tmp_path}")
    made = await keys.create("acme", "admin", "x")
    await keys.check(made.key)
    listed = await keys.listed()
    await keys.aclose()
    secret = made.key[24:67]
    assert len(secret) == 43
    assert contains(tmp_path, made.info.key_id)
    assert not contains(tmp_path, secret)
    assert secret not in repr(made) + repr(listed)


@pytest.mark.parametrize(
    "spoilt", ["", "x", "recall_", "wrong secret", "wrong id", "wrong namespace"]
)
async def test_a_key_that_was_never_made_is_refused(spoilt: str) -> None:
    process = Process(MemoryBucket())
    key = (await process.keys.create("acme", "agent", "x")).key
    presented = {
        "wrong secret": key[:30] + ("0000" if key[30:34] != "0000" else "1111") + key[34:],
        "wrong namespace": key + "s",
        "wrong id": key.replace(key[7:23], "f" * 16),
    }.get(spoilt, spoilt)
    process.clock.advance(1.0)
    for attempt in (presented, None):
        with pytest.raises(KeyRefused) as refused:
            await process.keys.check(attempt)
        assert key[24:67] not in str(refused.value)
        if presented:
            assert presented not in str(refused.value)


async def test_another_process_knows_a_new_key_at_once() -> None:
    bucket = MemoryBucket()
    one, other = Process(bucket, "a"), Process(bucket, "b")
    with pytest.raises(KeyRefused):
        await other.keys.check(None)
    made = await one.keys.create("acme", "agent", "x")
    other.clock.advance(0.5)
    assert (await other.keys.check(made.key)).namespace == "acme"


async def test_a_revocation_takes_effect_in_every_process() -> None:
    bucket = MemoryBucket()
    one, other = Process(bucket, "a"), Process(bucket, "b")
    made = await one.keys.create("acme", "agent", "x")
    kept = await one.keys.create("acme", "agent", "y")
    await other.keys.check(made.key)
    await one.keys.revoke(made.info.key_id)
    await one.keys.revoke(made.info.key_id)
    with pytest.raises(KeyRefused, match=made.info.key_id):
        await one.keys.check(made.key)
    await other.keys.check(made.key)
    other.clock.advance(KNOWN_FOR + 0.01)
    with pytest.raises(KeyRefused, match="revoked"):
        await other.keys.check(made.key)
    await other.keys.check(kept.key)
    assert [info.revoked_at is None for info in await other.keys.listed()] == [False, True]


async def test_the_list_is_not_read_at_every_request() -> None:
    process = Process(MemoryBucket())
    made = await process.keys.create("acme", "agent", "x")
    process.store.reads = 0
    for _ in range(100):
        await process.keys.check(made.key)
        process.clock.advance(0.01)
    assert process.store.reads == 0


async def test_keys_that_nobody_knows_share_one_look() -> None:
    process = Process(MemoryBucket())
    await process.keys.create("acme", "agent", "x")
    process.store.reads, refused = 0, 0

    async def knock() -> None:
        nonlocal refused
        with pytest.raises(KeyRefused):
            await process.keys.check(NOBODYS)
        refused += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(knock)
        await anyio.wait_all_tasks_blocked()
        assert (process.store.reads, refused) == (0, 0)
        process.clock.advance(UNKNOWN_KEY_PAUSE)
    assert (process.store.reads, refused) == (1, 100)


async def test_a_key_that_was_just_made_elsewhere_is_waited_for() -> None:
    bucket = MemoryBucket()
    one, other = Process(bucket, "a"), Process(bucket, "b")
    await other.keys.listed()
    made = await one.keys.create("acme", "agent", "x")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other.keys.check, made.key)
        await anyio.wait_all_tasks_blocked()
        other.clock.advance(UNKNOWN_KEY_PAUSE)


async def test_a_store_that_is_down_shuts_nobody_out_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process(MemoryBucket())
    made = await process.keys.create("acme", "agent", "x")
    process.store.down = True
    process.clock.advance(STALE - 1)
    await process.keys.check(made.key)
    assert "cannot be read" in caplog.text
    process.clock.advance(2)
    with pytest.raises(StoreUnavailable):
        await process.keys.check(made.key)
    process.store.down = False
    await process.keys.check(made.key)


async def test_a_store_that_hangs_holds_up_one_request_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Hanging(MemoryStore):
        hangs = False

        async def read(self, *what: Any) -> Any:
            if self.hangs:
                await anyio.sleep(30)
            return await super().read(*what)

    store, clock = Hanging(), FakeClock()
    keys = Keys(store, clock)
    made = await keys.create("acme", "agent", "x")
    monkeypatch.setattr(keys_module, "LOOK_SECONDS", 0.2)
    store.hangs = True
    clock.advance(KNOWN_FOR + 1)
    done: list[str] = []

    async def check(name: str) -> None:
        await keys.check(made.key)
        done.append(name)

    with anyio.fail_after(2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check, "the one that looks")
            await anyio.sleep(0.05)
            for _ in range(3):
                await check("another")
    assert done == ["another"] * 3 + ["the one that looks"]


async def test_two_processes_make_keys_at_once() -> None:
    bucket = MemoryBucket()
    processes = [Process(bucket, name) for name in "abc"]
    async with anyio.create_task_group() as tasks:
        for process in processes:
            for _ in range(5):
                tasks.start_soon(process.keys.create, "acme", "agent", "x")
    assert [len(await process.keys.listed()) for process in processes] == [15] * 3


@pytest.mark.parametrize(
    ("namespace", "role"),
    [("recall-system", "admin"), ("Acme", "agent"), ("", "agent"), ("acme", "root")],
)
async def test_a_key_that_would_open_nothing_is_not_made(namespace: str, role: Any) -> None:
    process = Process(MemoryBucket())
    with pytest.raises(InvalidSettings):
        await process.keys.create(namespace, role, "x")
    with pytest.raises(InvalidSettings, match="no key"):
        await process.keys.revoke("nobody's")
    assert await process.keys.listed() == ()


async def test_an_entry_of_a_newer_server_opens_nothing_and_hides_nothing() -> None:
    bucket = MemoryBucket()
    process = Process(bucket, "a")
    await process.store.append("keys", 0, b'{"v":2,"kind":"key","at":1.0,"key_id":"f"}')
    made = await process.keys.create("acme", "agent", "x")
    assert await Process(bucket, "b").keys.check(made.key) == made.info
    assert len(await process.keys.listed()) == 1


# --- at the door ------------------------------------------------------------------------------


async def test_a_request_without_a_good_key_is_refused(home: House) -> None:
    key = await home.key("agent")
    for headers in (
        {},
        {"authorization": f"Basic {key}"},
        {"authorization": key},
        {"authorization": "Bearer"},
        {"authorization": "Bearer nonsense"},
        {"authorization": f"Bearer {key}x"},
    ):
        client = await home.client_with(None, **headers)
        response = await client.get("/v1/calls/room")
        assert (response.status_code, kind(response)) == (401, "key-refused")
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert key not in response.text
    client = await home.client_with(None, authorization=f"bearer  {key} ")
    assert (await client.get("/v1/calls/room")).status_code == 200


async def test_a_key_that_was_revoked_is_refused_at_the_next_request(home: House) -> None:
    made = await home.keys.create("default", "agent", "x")
    client = await home.client_with(made.key)
    assert (await client.get("/v1/calls/room")).status_code == 200
    await home.keys.revoke(made.info.key_id)
    response = await client.get("/v1/calls/room")
    assert response.status_code == 401
    assert made.info.key_id in problem(response)["detail"]


async def test_a_key_is_in_no_log_and_in_no_answer(
    home: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        made = await home.keys.create("default", "read", "x")
        client = await home.client_with(made.key)
        told = [
            await client.get("/v1/calls/room"),
            await client.post("/v1/calls/room/lease", json=lease()),
            await client.get("/metrics"),
        ]
        await home.keys.revoke(made.info.key_id)
        told.append(await client.get("/v1/calls/room"))
    assert [response.status_code for response in told] == [200, 403, 200, 401]
    secret = made.key[24:]
    for text in [caplog.text, *(response.text for response in told)]:
        assert secret not in text


async def test_what_is_not_the_call_s_content_needs_no_key(home: House) -> None:
    client = await home.client_with(None)
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await client.get(path)).status_code == 200


async def test_one_call_of_another_namespace_is_another_call(home: House) -> None:
    one, other = await home.client("agent", "one"), await home.client("agent", "other")
    assert (await one.post("/v1/calls/room/lease", json=lease())).status_code == 200
    assert (await append(one, unit("room")))[0]["ack"]
    assert (await other.get("/v1/calls/room")).json()["position"] == 0
    assert (await other.post("/v1/calls/room/lease", json=lease("w2"))).json()["epoch"] == 1
