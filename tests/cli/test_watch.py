"""`watch`: a watcher as people run it, from what it says first to how it leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from recall_livekit import InvalidSettings
from recall_livekit.cli.watching import Watch, _livekit, _served
from recall_livekit.rooms.livekit_rooms import Room
from recall_livekit.testing.leash import free_ports
from recall_livekit.testing.livekit_server import LiveKitServer
from recall_livekit.watcher.endpoint import WEBHOOK_PATH

from ..watcher.hooks import KEY, SECRET, agent_left, signed
from .fake_livekit import FakeLiveKit
from .serving import Serving, made_key
from .terminal import bounded, piped
from .watching import Watching

ACTS = "this watcher acts from here on"


@pytest.fixture
def livekit() -> Iterator[FakeLiveKit]:
    with FakeLiveKit() as fake:
        yield fake


def post(url: str, body: bytes, authorization: str) -> int:
    request = urllib.request.Request(f"{url}{WEBHOOK_PATH}", body, {"Authorization": authorization})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def figure(figures: str, name: str) -> float:
    found = (line.split() for line in figures.splitlines())
    return next(float(words[1]) for words in found if words[:1] == [name])


def soon(check: object, seconds: float = 10.0) -> None:
    """Wait until this is true."""
    assert callable(check)
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- what it says -------------------------------------------------------------------------------


def test_it_says_first_what_it_watches_and_where(livekit: FakeLiveKit, own: Path) -> None:
    options = ("--agent-name", "support", "--serve-rooms", "s-*", "--standby", "joined")
    with Watching(*options, at=own, environment=livekit.environment) as watching:
        line = watching.until("watching ")
        watching.until(ACTS)
        assert watching.end()[0] == 0
    for told in (livekit.url, str(own), "'support' in rooms s-*", "standby joined", "no webhooks"):
        assert told in line
    assert SECRET not in watching.log


def test_machines_read_a_log_of_json(livekit: FakeLiveKit, own: Path) -> None:
    with Watching("--log-format", "json", at=own, environment=livekit.environment) as watching:
        watching.until(ACTS)
        assert watching.end()[0] == 0
    told = [json.loads(line) for line in watching.lines]
    assert all({"at", "level", "logger", "message"} <= set(one) for one in told)
    assert any(one["message"].startswith(f"watching {livekit.url}") for one in told)


def test_an_empty_directory_is_said_to_be_one(livekit: FakeLiveKit, tmp_path: Path) -> None:
    with Watching(at=tmp_path / "none", environment=livekit.environment) as watching:
        watching.until("nothing is recorded in")
        assert watching.end()[0] == 0


# --- what it does -------------------------------------------------------------------------------


def test_a_caller_that_nobody_serves_is_served(livekit: FakeLiveKit, own: Path) -> None:
    livekit.rooms = ["support-1", "elsewhere"]
    options = ("--agent-name", "support", "--serve-rooms", "sales-*", "--serve-rooms", "support-*")
    with Watching(*options, at=own, environment=livekit.environment):
        soon(lambda: livekit.dispatched)
    assert set(livekit.dispatched) == {("support-1", "support")}


def test_webhooks_come_in_and_figures_go_out(livekit: FakeLiveKit, own: Path) -> None:
    body = agent_left()
    with Watching("--listen", "127.0.0.1:0", at=own, environment=livekit.environment) as watching:
        url = watching.listening()
        watching.until(ACTS)
        assert post(url, body, signed(body)) == 200
        assert post(url, body, signed(body)) == 200
        assert post(url, body, signed(body, secret="t" * 32)) == 401
        watching.until("a webhook was refused (forged)")
        assert get(f"{url}/healthz")[0] == get(f"{url}/readyz")[0] == 200
        figures = get(f"{url}/metrics")[1]
        assert watching.end()[0] == 0
    for line in (
        "recall_watcher_acting 1.0",
        "recall_watcher_livekit_reachable 1.0",
        'recall_watcher_webhooks_total{outcome="accepted"} 1.0',
        'recall_watcher_webhooks_total{outcome="doubled"} 1.0',
        'recall_watcher_webhooks_total{outcome="forged"} 1.0',
    ):
        assert line in figures.splitlines()


def test_a_webhook_has_a_room_looked_at_now(livekit: FakeLiveKit, own: Path) -> None:
    """A room that LiveKit does not list is asked for by its name only because of a sign."""
    with Watching("--listen", "127.0.0.1:0", at=own, environment=livekit.environment) as watching:
        url = watching.listening()
        body = agent_left(room="a room", event_id="")
        soon(lambda: post(url, body, signed(body)) == 200 and "a room" in livekit.named)


@pytest.mark.livekit
@pytest.mark.anyio
async def test_a_real_server_s_caller_is_served_by_its_webhook(own: Path, tmp_path: Path) -> None:
    """No worker is there: it asks for an agent again and again, and says so."""
    from livekit import rtc

    (port,) = free_ports(1)
    hook = f"http://127.0.0.1:{port}{WEBHOOK_PATH}"
    options = ("--agent-name", "support", "--serve-rooms", "s-*", "--listen", f"127.0.0.1:{port}")
    async with LiveKitServer(tmp_path, webhooks=[hook]) as server:
        with Watching(*options, at=own, environment=server.environment) as watching:
            await asyncio.to_thread(watching.until, ACTS)
            room = rtc.Room()
            await room.connect(server.url, server.token("s-1", "caller"))

            def dispatched() -> bool:
                figures = get(f"http://127.0.0.1:{port}/metrics")[1]
                return figure(figures, "recall_watcher_dispatches_dropped_total") >= 2

            await asyncio.to_thread(soon, dispatched)
            figures = get(f"http://127.0.0.1:{port}/metrics")[1]
            await room.disconnect()
            code, took = await asyncio.to_thread(watching.end)
    assert (code, took < 1.3) == (0, True)
    assert 'recall_watcher_webhooks_total{outcome="accepted"} 2.0' in figures
    assert 'recall_watcher_webhooks_total{outcome="forged"} 0.0' in figures


def test_of_two_one_acts_and_then_the_other(livekit: FakeLiveKit, own: Path) -> None:
    with Watching(at=own, environment=livekit.environment) as first:
        first.until(ACTS)
        with Watching(at=own, environment=livekit.environment) as second:
            second.until("watching ")
            time.sleep(1.0)
            assert ACTS not in second.log
            code, _ = first.end()
            assert code == 0
            second.until(ACTS, 1.0)
            assert second.end()[0] == 0


# --- how it leaves ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_leaves_within_a_second(livekit: FakeLiveKit, own: Path, how: signal.Signals) -> None:
    with Watching("--listen", "127.0.0.1:0", at=own, environment=livekit.environment) as watching:
        watching.until(ACTS)
        code, took = watching.end(how)
    assert code == 0
    assert took < 1.3  # with the end of the interpreter, on a machine that others use
    assert "left, as it was told\n" in watching.log


def test_it_leaves_while_livekit_is_silent(livekit: FakeLiveKit, own: Path) -> None:
    livekit.silent = True
    with Watching("--listen", "127.0.0.1:0", at=own, environment=livekit.environment) as watching:
        url = watching.listening()
        soon(lambda: livekit.asked)
        assert get(f"{url}/readyz")[0] == 503
        code, took = watching.end()
    assert code == 0
    assert took < 1.3  # with the end of the interpreter, on a machine that others use


def test_it_leaves_while_the_records_hang(livekit: FakeLiveKit, own: Path) -> None:
    """It cannot hand its lease over, which lapses soon."""
    with (
        Serving(own) as serving,
        Watching(at=serving.url, environment=livekit.environment) as watching,
    ):
        watching.until(ACTS)
        serving.process.send_signal(signal.SIGSTOP)
        try:
            code, took = watching.end()
        finally:
            serving.process.send_signal(signal.SIGCONT)
    assert code == 0
    assert took < 1.3


HANGS = """
import asyncio, logging, sys, time
from recall_livekit.cli.watching import _until_told

async def work():
    try:
        print("works", file=sys.stderr, flush=True)
        await asyncio.sleep(60)
    finally:
        time.sleep(60)

async def blocks():
    print("works", file=sys.stderr, flush=True)
    time.sleep(60)

async def left_with_a_thread():
    print("works", file=sys.stderr, flush=True)
    await asyncio.to_thread(time.sleep, 60)

logging.basicConfig(level="INFO")
asyncio.run(_until_told({}()))
"""


@pytest.mark.parametrize("what", ["work", "blocks", "left_with_a_thread"])
def test_it_leaves_whatever_hangs(what: str) -> None:
    command = [sys.executable, "-c", HANGS.format(what)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with bounded(started, 30) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "works\n"
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=20)
        took = time.monotonic() - began
    assert process.returncode == 0
    assert took < 1.3
    assert "something hung" in told


# --- what is away -------------------------------------------------------------------------------


def test_a_livekit_that_is_away_is_tried_until_it_is_there(own: Path) -> None:
    (port,) = free_ports(1)
    environment = FakeLiveKit(port).environment
    options = ("--agent-name", "a", "--serve-rooms", "*", "--listen", "127.0.0.1:0")
    with Watching(*options, at=own, environment=environment) as watching:
        url = watching.listening()
        watching.until("LiveKit's server cannot be reached")
        assert get(f"{url}/readyz")[0] == 503
        assert get(f"{url}/healthz")[0] == 200
        with FakeLiveKit(port) as livekit:
            livekit.rooms = ["a room"]
            watching.until("LiveKit's server is back")
            soon(lambda: livekit.dispatched)
            assert get(f"{url}/readyz")[0] == 200
        assert watching.end()[0] == 0


def test_records_that_are_away_are_tried_until_they_are_there(
    livekit: FakeLiveKit, own: Path
) -> None:
    (port,) = free_ports(1)
    where = f"http://127.0.0.1:{port}"
    with Watching(at=where, environment=livekit.environment) as watching:
        watching.until("the records cannot be reached")
        with Serving(own, "--listen", f"127.0.0.1:{port}"):
            watching.until(ACTS)
            assert watching.end()[0] == 0


# --- what cannot work ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"])
def test_what_is_missing_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.setenv(each, "ws://127.0.0.1:9")
    monkeypatch.delenv(name)
    ran = piped("watch")
    assert ran.code == 2
    assert f"set {name}, as for a worker" in ran.stderr


def test_a_key_that_livekit_does_not_take(livekit: FakeLiveKit, own: Path) -> None:
    environment = livekit.environment | {"LIVEKIT_API_SECRET": "x" * 32}
    ran = piped("watch", "--url", f"sqlite:///{own}", **environment)
    assert ran.code == 1
    assert "LiveKit's server refuses the key" in ran.stderr
    assert "x" * 32 not in ran.stderr


@pytest.mark.parametrize(
    ("role", "says"), [(None, "does not know"), ("read", "needs a key of role agent")]
)
def test_a_key_that_the_recall_server_does_not_take(
    livekit: FakeLiveKit, own: Path, role: str | None, says: str
) -> None:
    made = made_key(own, role or "agent")
    key = made if role else f"recall_{'0' * 16}_{'x' * 43}.default"
    with Serving(own) as serving:
        ran = piped("watch", "--url", serving.url, RECALL_API_KEY=key, **livekit.environment)
    assert ran.code == 1
    assert says in ran.stderr
    assert key not in ran.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--livekit-url", "livekit:7880"), "is no LiveKit server: write ws://HOST:PORT"),
        (("--livekit-url", "ws://key:secret@livekit"), "carries no user or password"),
        (("--livekit-url", "wss://x.livekit.cloud"), "is LiveKit Cloud, which starts the job"),
        (("--serve-rooms", "*"), "say which agent they must have, with --agent-name"),
        (("--listen", "nowhere"), "write HOST:PORT"),
        (("--listen", "192.0.2.1:80"), "cannot listen at 192.0.2.1:80"),
        (("--url", "nonsense"), "sqlite:///"),
        (("--standby", "sometimes"), "following"),
    ],
)
def test_what_makes_no_sense_is_said(
    livekit: FakeLiveKit, tmp_path: Path, args: tuple[str, ...], says: str
) -> None:
    url = f"sqlite:///{tmp_path / 'records'}"
    ran = piped("watch", "--url", url, *args, **livekit.environment)
    assert ran.code == 2
    assert says in " ".join(ran.stderr.split())
    assert not (tmp_path / "records").exists()


def test_a_port_that_is_taken(livekit: FakeLiveKit, own: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = piped("watch", "--url", f"sqlite:///{own}", "--listen", where, **livekit.environment)
    assert ran.code == 2
    assert f"cannot listen at {where}" in ran.stderr


def test_livekit_cloud_is_watched_if_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEKIT_API_KEY", KEY)
    monkeypatch.setenv("LIVEKIT_API_SECRET", SECRET)
    cloud = "wss://x.livekit.cloud"
    assert _livekit(Watch(livekit_url=cloud, url=None, cloud=True)) == cloud
    with pytest.raises(InvalidSettings, match="second agent"):
        _livekit(Watch(livekit_url=cloud, url=None))


@pytest.mark.parametrize(
    ("globs", "served"),
    [
        (("support-*",), ["support-1"]),
        (("*-1", "s*"), ["support-1", "Sales-1", "sales"]),
        (("[ab]x",), ["ax"]),
        (("support",), []),
    ],
)
def test_rooms_are_named_by_globs(globs: tuple[str, ...], served: list[str]) -> None:
    serves = _served(globs)
    assert serves is not None
    rooms = [Room(name, "RM_1", 0.0) for name in ("support-1", "Sales-1", "sales", "ax", "cx")]
    assert [room.name for room in rooms if serves(room)] == served
    assert _served(()) is None


def test_it_has_a_help_with_examples() -> None:
    ran = piped("watch", "--help")
    assert ran.code == 0
    assert "Examples:\n    recall-livekit watch" in ran.stdout
    assert "LIVEKIT_API_SECRET" in ran.stdout
    assert "--api-secret" not in ran.stdout
