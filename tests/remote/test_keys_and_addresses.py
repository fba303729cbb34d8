"""What an application passes: an address, a key that may change, a client of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import httpx2
import pytest

from recall_livekit import Closed, InvalidSettings, Recall, Settings, StoreUnavailable
from recall_livekit.errors import KeyRefused
from recall_livekit.remote.keys import ApiKey, key_source
from recall_livekit.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECALL_URL", "RECALL_API_KEY", "RECALL_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://", "write https://HOST"),
        ("https:recall.internal", "write https://HOST"),
        ("https://recall:99999999", "write https://HOST"),
        ("https://[::1", "write https://HOST"),
        ("https://user:hunter2@recall.internal", "RECALL_API_KEY"),
        ("https://recall.internal/?key=hunter2", "write https://recall.internal"),
        ("https://recall.internal/a b", "write https://recall.internal"),
    ],
)
def test_a_bad_address_says_what_to_write_and_no_secret(url: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told) as refused:
        Recall.open(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "line\nbreak"])
def test_a_key_that_can_be_none_is_refused_at_once(key: str) -> None:
    with pytest.raises(InvalidSettings, match="key") as refused:
        Recall.open("https://recall.internal", api_key=key)
    assert key.strip() == "" or key not in str(refused.value)


def test_a_batch_larger_than_a_server_takes_is_refused_at_once() -> None:
    with pytest.raises(InvalidSettings, match="1024"):
        Recall.open("https://recall.internal", settings=Settings(batch_records=2000))


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://recall.svc", True),
        ("http://127.0.0.1:1", False),
        ("http://localhost:1", False),
        ("http://[::1]:1", False),
        ("https://recall.svc", False),
    ],
)
def test_a_key_over_an_open_wire_is_warned_of(
    url: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Recall.open(url, api_key="recall_secret")
    assert ("not encrypted" in caplog.text) is warned
    assert "recall_secret" not in caplog.text


async def key_of(given: ApiKey | None) -> str | None:
    return await key_source(given, FakeClock()).current()


async def test_where_the_key_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert await key_of(None) is None
    file = tmp_path / "key"
    file.write_text("from-file\n")
    monkeypatch.setenv("RECALL_API_KEY_FILE", str(file))
    assert await key_of(None) == "from-file"
    monkeypatch.setenv("RECALL_API_KEY", "from-environment\n")
    assert await key_of(None) == "from-environment"
    assert await key_of("given") == "given"
    assert await key_of(lambda: "called") == "called"

    async def fetched() -> str:
        return "awaited"

    assert await key_of(fetched) == "awaited"


async def test_a_function_is_called_off_the_event_loop() -> None:
    threads: list[threading.Thread] = []

    def key() -> str:
        threads.append(threading.current_thread())
        return "key"

    await key_of(key)
    assert threads[0] is not threading.main_thread()


async def test_a_key_that_was_refused_is_asked_for_again_at_most_once_a_second() -> None:
    keys = iter(["one", "two", "three"])
    clock = FakeClock()
    source = key_source(lambda: next(keys), clock)
    assert await source.current() == "one"
    assert not await source.renewed("one"), "it was asked for just now"
    clock.advance(1.0)
    assert await source.renewed("one")
    assert await source.renewed("one"), "somebody else had it renewed"
    assert await source.current() == "two"
    assert not await source.renewed("two")
    clock.advance(1.0)
    assert await source.renewed("two")


@pytest.mark.parametrize("bad", ["raises", "missing file", "None", "empty"])
async def test_a_key_that_cannot_be_had_is_a_refusal_without_a_word_of_it(
    bad: str, tmp_path: Path
) -> None:
    def key() -> str:
        match bad:
            case "raises":
                raise RuntimeError("hunter2")
            case "missing file":
                return (tmp_path / "none").read_text()
            case "None":
                return None  # type: ignore[return-value]
            case _:
                return ""

    source = key_source(key, FakeClock())
    for _ in range(2):
        with pytest.raises(KeyRefused) as refused:
            await source.current()
        assert "hunter2" not in str(refused.value)


async def test_a_client_of_ones_own_is_used_and_not_closed() -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(502)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        recall = Recall.open(
            "https://recall.internal/behind/", api_key="recall_secret", http_client=client
        )
        with pytest.raises(StoreUnavailable, match="502") as refused:
            await recall.read("a room")
        await recall.aclose()
        assert not client.is_closed
    with pytest.raises(Closed):
        await Recall.open("https://recall.internal", http_client=client).read("a room")
    [request] = seen
    assert str(request.url).startswith("https://recall.internal/behind/v1/calls/~")
    assert request.headers["authorization"] == "Bearer recall_secret"
    assert "recall_secret" not in str(refused.value)
