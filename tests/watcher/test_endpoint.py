"""The watcher's HTTP side, with a real client, and with clients that mean no good."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from recall_livekit.testing.leash import eventually
from recall_livekit.watcher import endpoint as module
from recall_livekit.watcher.endpoint import WEBHOOK_PATH, Endpoint
from recall_livekit.watcher.webhooks import BODY_BYTES, Received, Webhooks

from .hooks import KEY, SECRET, agent_left, body_of, signed

pytestmark = pytest.mark.anyio

BODY = agent_left()
UNFINISHED = f"POST {WEBHOOK_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode()


class House:
    """An endpoint that listens, and what came through it."""

    def __init__(self) -> None:
        self.hooks = Webhooks(KEY, SECRET)
        self.got: list[Received] = []
        self.lacks: list[str] = []
        self.port = 0
        self.session: aiohttp.ClientSession | None = None

    def receive(self, body: bytes, authorization: str) -> Received:
        self.got.append(self.hooks.receive(body, authorization))
        return self.got[-1]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        endpoint = Endpoint(self.receive, lambda: self.lacks, lambda: b"recall_x 1.0\n")
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            self.port = bound.getsockname()[1]
            async with (
                endpoint.listening(bound),
                aiohttp.ClientSession(f"http://127.0.0.1:{self.port}") as self.session,
            ):
                yield

    async def post(
        self, body: bytes = BODY, authorization: str | None = None
    ) -> tuple[int, dict[str, str]]:
        assert self.session is not None
        headers = {"Authorization": signed(body) if authorization is None else authorization}
        async with self.session.post(WEBHOOK_PATH, data=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> tuple[int, str]:
        assert self.session is not None
        async with self.session.get(path) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def raw(port: int, sent: bytes = b"") -> AsyncIterator[asyncio.StreamReader]:
    """A client that sends what it likes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        yield reader
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = House()
    async with house.open():
        yield house


async def test_a_webhook_comes_in(house: House) -> None:
    assert await house.post() == (200, {"outcome": "accepted", "why": ""})
    assert [one.room for one in house.got] == ["a room"]


@pytest.mark.parametrize(
    ("body", "authorization", "status", "outcome"),
    [
        (body_of("track_published"), None, 200, "ignored"),
        (BODY, "nonsense", 401, "forged"),
        (BODY, "", 401, "forged"),
        (BODY, signed(BODY, seconds=-300), 401, "expired"),
        (b"{", signed(b"{"), 400, "malformed"),
    ],
)
async def test_what_is_no_sign_is_answered_by_its_name(
    house: House, body: bytes, authorization: str | None, status: int, outcome: str
) -> None:
    answered, told = await house.post(body, authorization)
    assert (answered, told["outcome"]) == (status, outcome)
    assert not [one for one in house.got if one.room]


async def test_one_that_livekit_sends_again_is_no_fault(house: House) -> None:
    assert [(await house.post())[1]["outcome"] for _ in range(2)] == ["accepted", "doubled"]


async def test_a_body_that_is_too_large_is_not_read(house: House) -> None:
    full = BODY + b" " * (BODY_BYTES - len(BODY))
    assert (await house.post(full))[0] == 200
    assert (await house.post(full + b" "))[0] == 413
    assert len(house.got) == 1


async def test_a_compressed_body_is_not_unpacked(house: House) -> None:
    """Its bytes are what was signed, and a small one may unpack to a huge one."""
    assert house.session is not None
    headers = {"Authorization": signed(BODY)}
    async with house.session.post(
        WEBHOOK_PATH, data=BODY, compress="gzip", headers=headers
    ) as answer:
        assert answer.status == 401
    assert [one.outcome for one in house.got] == ["forged"]


async def test_a_body_that_never_ends_is_given_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.1)
    async with raw(house.port, UNFINISHED) as reader, asyncio.timeout(5):
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    assert not house.got


async def test_a_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)
    house = House()
    async with house.open(), raw(house.port, UNFINISHED[:40]) as reader, asyncio.timeout(5):
        assert await reader.read() == b""


async def test_connections_have_a_number(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS", 3)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(raw(house.port))
        async with raw(house.port) as reader, asyncio.timeout(5):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    await eventually(partial(answers, house), within=5)


async def answers(house: House) -> bool:
    try:
        return (await house.get("/healthz"))[0] == 200
    except aiohttp.ClientError:  # those that left may still be counted
        return False


@pytest.mark.parametrize(("method", "path"), [("GET", WEBHOOK_PATH), ("POST", "/"), ("GET", "/")])
async def test_there_is_nothing_else(house: House, method: str, path: str) -> None:
    assert house.session is not None
    async with house.session.request(method, path) as answer:
        assert answer.status in (404, 405)


# --- for those who run it -----------------------------------------------------------------------


async def test_ready_is_what_lacks_nothing(house: House) -> None:
    assert await house.get("/readyz") == (200, '{"status": "ok"}')
    house.lacks = ["LiveKit's server cannot be reached"]
    status, text = await house.get("/readyz")
    assert status == 503
    assert "LiveKit's server cannot be reached" in text
    assert (await house.get("/healthz"))[0] == 200


async def test_prometheus_reads_its_figures(house: House) -> None:
    assert house.session is not None
    async with house.session.get("/metrics") as answer:
        assert answer.content_type == "text/plain"
        assert await answer.read() == b"recall_x 1.0\n"


async def test_strangers_do_not_fill_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            await house.post(BODY, "EVIL")
        await house.post(BODY, signed(BODY, seconds=-300))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "a webhook was refused (forged)",
        "a webhook was refused (expired)",
    ]
    assert "EVIL" not in caplog.text


async def test_it_leaves_at_once_whoever_is_connected() -> None:
    house, loop = House(), asyncio.get_running_loop()
    async with house.open():
        stack = AsyncExitStack()
        await stack.enter_async_context(raw(house.port, UNFINISHED))
        await house.get("/healthz")
        began = loop.time()
    assert loop.time() - began < 1.0
    await stack.aclose()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", house.port)


async def test_a_unix_socket(tmp_path: Path) -> None:
    house: House = House()
    lacks: Callable[[], list[str]] = list
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "watch.sock"))
        connector = aiohttp.UnixConnector(str(tmp_path / "watch.sock"))
        async with (
            Endpoint(house.receive, lacks, bytes).listening(bound),
            aiohttp.ClientSession("http://watcher", connector=connector) as session,
            session.get("/healthz") as answer,
        ):
            assert answer.status == 200
