"""`doctor`, when a LiveKit server is named: what a watcher needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest

from recall_livekit.cli.checks_livekit import _named
from recall_livekit.cli.findings import Finding
from recall_livekit.testing.livekit_server import LiveKitServer

from ..watcher.hooks import KEY, SECRET
from .conftest import Invoke
from .fake_livekit import FakeLiveKit
from .terminal import at
from .test_doctor import findings, levels
from .test_running import imported

WHAT = ("LIVEKIT_URL", "LiveKit", "asking agents", "LiveKit's clock")
Examine = Callable[..., dict[str, Finding]]


@pytest.fixture
def examine(invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    def with_these(**environment: str) -> dict[str, Finding]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        found = findings(invoke, at=filled)
        return {what: one for what, one in found.items() if what in WHAT}

    return with_these


def test_a_server_that_has_all_that_is_needed(examine: Examine) -> None:
    with FakeLiveKit() as livekit:
        found = examine(**livekit.environment)
    assert tuple(found) == WHAT
    assert set(levels(found).values()) == {"ok"}
    assert SECRET not in str(found)


@pytest.mark.livekit
@pytest.mark.anyio
async def test_a_real_server(examine: Examine, tmp_path: Path) -> None:
    async with LiveKitServer(tmp_path) as server:
        found = await asyncio.to_thread(examine, **server.environment)
        wrong = await asyncio.to_thread(examine, LIVEKIT_API_SECRET="x" * 32)
    assert set(levels(found).values()) == {"ok"}
    assert tuple(found) == WHAT
    assert wrong["LiveKit"].level == "fail"
    assert "does not take the key" in wrong["LiveKit"].says


def test_nothing_is_looked_at_where_none_is_named(examine: Examine, filled: Path) -> None:
    assert examine() == {}
    assert not imported("doctor", *at(filled)) & {"livekit", "aiohttp"}


@pytest.mark.parametrize("missing", ["LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"])
def test_half_a_key_is_none(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    given = {"LIVEKIT_URL": "ws://x", "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET}
    found = examine(**{name: value for name, value in given.items() if name != missing})
    assert levels(found) == {"LIVEKIT_URL": "fail"}
    assert missing in found["LIVEKIT_URL"].says


@pytest.mark.parametrize(
    "url", ["livekit:7880", "ftp://livekit", "ws://", "ws://x:0", "ws://k:s@x"]
)
def test_an_address_that_is_none(examine: Examine, url: str) -> None:
    found = examine(LIVEKIT_URL=url, LIVEKIT_API_KEY=KEY, LIVEKIT_API_SECRET=SECRET)
    assert levels(found) == {"LIVEKIT_URL": "fail"}
    assert "k:s" not in str(found)


def test_nobody_there(examine: Examine) -> None:
    given = {"LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET}
    found = examine(LIVEKIT_URL="ws://127.0.0.1:9", **given)
    assert levels(found) == {"LIVEKIT_URL": "ok", "LiveKit": "fail"}


def test_a_server_that_cannot_ask_agents(examine: Examine) -> None:
    with FakeLiveKit() as livekit:
        livekit.knows_rpc = False
        found = examine(**livekit.environment)
    assert found["asking agents"].level == "warn"


@pytest.mark.parametrize(("off", "level"), [(-20.0, "ok"), (90.0, "fail"), (-90.0, "fail")])
def test_a_clock_that_is_off(examine: Examine, off: float, level: str) -> None:
    with FakeLiveKit() as livekit:
        livekit.date = formatdate(time() - off, usegmt=True)
        found = examine(**livekit.environment)["LiveKit's clock"]
    assert found.level == level
    if level == "fail":
        assert ("ahead of" if off > 0 else "behind") in found.says


def test_a_server_that_tells_no_time(examine: Examine) -> None:
    with FakeLiveKit() as livekit:
        livekit.date = "yesterday"
        assert examine(**livekit.environment)["LiveKit's clock"].level == "warn"


def test_livekit_cloud_needs_no_watcher() -> None:
    given = {"LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET}
    assert "without a watcher" in _named({"LIVEKIT_URL": "wss://x.livekit.cloud", **given}).says
    assert _named({"LIVEKIT_URL": "wss://x.livekit.cloud.example", **given}).says.endswith(
        "example"
    )
