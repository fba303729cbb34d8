"""Workers and servers that die, freeze, part and come back: what the caller and the records see."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from recall_livekit import Call, CallState, Recall, Settings, StoreUnavailable
from recall_livekit.engine.entries import RecordsEntry
from recall_livekit.errors import KeyRefused
from recall_livekit.server.keys import Keys, open_keys

from ..call.test_call import until
from .children import child, server
from .serving import listening
from .wire import wire

pytestmark = pytest.mark.anyio
CALL = "a room"
GRACE = Settings().disconnect_grace
MARGIN = 0.3
"""What a takeover may take beside the grace, on a busy machine."""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECALL_URL", "RECALL_API_KEY", "RECALL_API_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def keys(tmp_path: Path) -> AsyncIterator[Keys]:
    """The keys of the servers over `tmp_path`; while none was made, none is needed."""
    opened = open_keys(f"sqlite:///{tmp_path}")
    yield opened
    await opened.aclose()


async def new_key(keys: Keys) -> str:
    return (await keys.create("default", "agent", "a test's")).key


async def said(recall: Recall) -> list[str]:
    return [turn.content for turn in await recall.turns(CALL)]


@asynccontextmanager
async def talking(call: Call, every: float = 0.02) -> AsyncIterator[list[str]]:
    """Record a turn every few milliseconds meanwhile; yields what was recorded so far."""
    spoken: list[str] = []

    async def talk() -> None:
        while True:
            spoken.append(f"turn {len(spoken)}")
            call.record_turn("user", spoken[-1])
            await anyio.sleep(every)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        yield spoken
        tasks.cancel_scope.cancel()


async def standing_by(call: Call) -> Call:
    call.start()
    await until(lambda: call.state is CallState.STANDBY)
    return call


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


# --- (a) the worker dies --------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["with the same key", "with another key", "at another server"])
async def test_a_waiting_worker_holds_within_the_grace_after_the_holder_was_killed(
    tmp_path: Path, keys: Keys, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await new_key(keys), await new_key(keys)
    monkeypatch.setenv("RECALL_API_KEY", first)
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(server(tmp_path))
        holder = await stack.enter_async_context(child("hold", url, CALL, 50))
        if waits == "at another server":
            _, url = await stack.enter_async_context(server(tmp_path))
        key = second if waits == "with another key" else first
        recall = await stack.enter_async_context(Recall.open(url, api_key=key))
        await holder.tells("held")
        call = await standing_by(recall.resume(CALL))
        await holder.listen(0.5)
        killed = time.monotonic()
        holder.send(signal.SIGKILL)
        assert await call.holding(GRACE + MARGIN)
        assert time.monotonic() - killed > GRACE / 2, "a live one would have had no time"
        await holder.kill()
        acknowledged = holder.values("acked")
        assert len(acknowledged) > 5
        call.record_turn("assistant", "goes on")
        assert await call.flush(2)
        recorded = await said(recall)
        assert recorded[: len(acknowledged)] == acknowledged
        assert recorded[-1] == "goes on"
        await call.aclose()


# --- (b) the server dies --------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_ends_and_is_started_again_in_mid_call_loses_and_doubles_nothing(
    tmp_path: Path, how: signal.Signals
) -> None:
    async with AsyncExitStack() as stack:
        process, url = await stack.enter_async_context(server(tmp_path))
        recall = await stack.enter_async_context(Recall.open(url))
        other = await stack.enter_async_context(Recall.open(url))
        async with recall.resume(CALL) as call:
            standby = await standing_by(other.resume(CALL))
            async with talking(call) as spoken:
                for _ in range(2):
                    await anyio.sleep(0.3)
                    process.send(how)
                    await process.ended()
                    await anyio.sleep(0.5)
                    assert call.may_speak
                    process, _ = await stack.enter_async_context(server(tmp_path, port_of(url)))
                    await until(lambda: call.lag < 10)
            assert await call.flush(5)
            assert (call.state, call.epoch) == (CallState.HOLDING, 1)
            assert standby.state is CallState.STANDBY, "the holder lived all the time"
        assert len(spoken) > 30
        assert await said(recall) == spoken
        await standby.aclose()


# --- (c) the server is frozen ---------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [8, pytest.param(30, marks=pytest.mark.long)])
async def test_a_server_frozen_in_mid_call_holds_up_nothing_and_gets_every_turn(
    tmp_path: Path, seconds: float
) -> None:
    async with server(tmp_path) as (process, url), Recall.open(url) as recall:
        async with recall.resume(CALL) as call:
            async with talking(call) as spoken:
                await until(lambda: call.lag < 3)
                process.send(signal.SIGSTOP)
                frozen = time.monotonic()
                while time.monotonic() - frozen < seconds:
                    asked = time.monotonic()
                    assert await call.settled()
                    await anyio.sleep(0.05)
                    assert time.monotonic() - asked < 0.3, "the event loop goes on"
                assert call.lag > 10
                process.send(signal.SIGCONT)
                await until(lambda: call.lag < 10, 10)
            assert await call.flush(5)
            assert call.state is CallState.HOLDING
        assert await said(recall) == spoken


async def test_an_agent_answers_within_its_wait_while_the_server_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ..livekit.line import Line
    from ..livekit.test_agent import ROOM, Support, talk

    class ByAddress(Support):
        """Opens its records as `RECALL_URL` tells."""

        def __init__(self) -> None:
            super().__init__(None)  # type: ignore[arg-type]

    async with server(tmp_path) as (process, url), Recall.open(url) as reader:
        async with reader.resume(ROOM) as earlier:
            earlier.record_turn("user", "my number is seven")
        monkeypatch.setenv("RECALL_URL", url)
        process.send(signal.SIGSTOP)
        started = time.monotonic()
        agent = ByAddress()
        async with Line(agent).open() as line:
            await until(lambda: line.heard)
            assert line.speaker.first_at is not None
            assert line.speaker.first_at - started < agent.call.settings.seed_wait + 0.6
            await talk(line, "hello")
            await anyio.sleep(8 - (time.monotonic() - started))
            process.send(signal.SIGCONT)
            await until(lambda: agent.call.state is CallState.HOLDING, 8)
            await talk(line, "again")
            assert "my number is seven" in line.prompts[-1], "the records landed late"
            assert await agent.call.flush(5)
        recorded = [turn.content for turn in await reader.turns(ROOM) if turn.role == "user"]
        assert recorded == ["my number is seven", "hello", "again"]


# --- (d) the server is not there ------------------------------------------------------------------


async def test_a_server_unreachable_from_the_start_is_told_and_gets_everything_when_it_comes(
    tmp_path: Path,
) -> None:
    with listening() as sock:
        port = sock.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with Recall.open(url, settings=Settings(open_wait=0.5, flush_wait=0.2)) as recall:
        with anyio.fail_after(3), pytest.raises(StoreUnavailable, match=f"{port}.*failed"):
            async with recall.resume(CALL):
                raise AssertionError("it cannot be read")
    async with AsyncExitStack() as stack:
        recall = await stack.enter_async_context(Recall.open(url))
        call = recall.resume(CALL)
        call.start()
        async with talking(call) as spoken:
            await anyio.sleep(0.5)
            assert call.may_speak
            assert call.lag == len(spoken)
            await stack.enter_async_context(server(tmp_path, port))
            await until(lambda: call.state is CallState.HOLDING and call.lag < 10, 10)
        assert await call.flush(5)
        await call.aclose()
        assert await said(recall) == spoken
    assert len(spoken) > 20


# --- (e) the wire parts ---------------------------------------------------------------------------


async def test_a_parted_holder_never_writes_after_a_takeover_and_learns_of_it_at_once(
    tmp_path: Path,
) -> None:
    settings = Settings(lease_ttl=2.0, request_wait=1.0, connect_wait=0.5, retry_last=0.5)
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(server(tmp_path))
        between = await stack.enter_async_context(wire(url))
        away = await stack.enter_async_context(Recall.open(between.address, settings=settings))
        here = await stack.enter_async_context(Recall.open(url, settings=settings))
        old = away.resume(CALL, if_lease_lost="leave")
        async with old:
            old.record_turn("user", "before")
            assert await old.flush(2)
            new = await standing_by(here.resume(CALL))
            between.drop()
            assert await new.holding(settings.lease_ttl + 1), "it lapses: nobody saw it break"
            new.record_turn("assistant", "goes on")
            assert await new.flush(2)
            old.record_turn("user", "said into the void")
            assert old.state is CallState.HOLDING, "it cannot know"
            await anyio.sleep(0.5)
            assert await said(here) == ["before", "goes on"]
            between.heal()
            healed = time.monotonic()
            await until(lambda: old.lost is not None)
            assert time.monotonic() - healed < settings.retry_last + settings.connect_wait + 0.5
            assert (old.state.value, old.lost) == ("read_only", "taken over")
            assert await old.flush(3)
            new.record_turn("user", "after")
            assert await new.flush(2)
            shown = await here.turns(CALL)
            assert [turn.content for turn in shown] == [
                "before",
                "goes on",
                "said into the void",
                "after",
            ]
            entries = await here.entries(CALL)
            records = [entry for entry in entries if isinstance(entry, RecordsEntry)]
            late = [entry for entry in records if entry.writer == old.writer][-1]
            assert late.provisional_run == 1, "never under the lease that it had lost"
            await new.aclose()


async def test_a_stream_that_is_cut_comes_back_before_anybody_takes_the_call(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(server(tmp_path))
        between = await stack.enter_async_context(wire(url))
        away = await stack.enter_async_context(Recall.open(between.address))
        here = await stack.enter_async_context(Recall.open(url))
        async with away.resume(CALL) as call:
            standby = await standing_by(here.resume(CALL))
            async with talking(call) as spoken:
                for _ in range(6):
                    await anyio.sleep(0.4)
                    between.cut()
            assert await call.flush(3)
            assert (call.state, call.epoch) == (CallState.HOLDING, 1)
            assert standby.state is CallState.STANDBY
            assert await said(here) == spoken
            between.delay = 0.05
            await anyio.sleep(1)
            assert standby.state is CallState.STANDBY
        assert await standby.holding(1)
        await standby.aclose()


async def test_a_wire_that_freezes_the_stream_is_noticed_and_opened_anew(tmp_path: Path) -> None:
    async with server(tmp_path) as (_, url), wire(url) as between:
        settings = Settings(stream_silence=1.5, request_wait=1.0, lease_ttl=60)
        recall = Recall.open(between.address, settings=settings)
        async with recall, recall.resume(CALL) as call:
            await anyio.sleep(0.2)
            before = between.accepted
            between.freeze()
            await anyio.sleep(2.5)
            assert between.accepted > before, "nothing else was asked: the stream was hung up"
            between.heal()
            call.record_turn("user", "hello")
            assert await call.flush(3)
            assert call.state is CallState.HOLDING


# --- (f) keys -------------------------------------------------------------------------------------


async def test_a_revoked_key_in_mid_call_is_told_and_a_rotated_one_is_picked_up(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "the key"
    monkeypatch.setenv("RECALL_API_KEY_FILE", str(file))
    old = await keys.create("default", "agent", "old")
    file.write_text(old.key)
    async with server(tmp_path) as (_, url), Recall.open(url) as recall:
        async with recall.resume(CALL) as call, talking(call) as spoken:
            await until(lambda: call.lag < 3)
            await keys.revoke(old.info.key_id)
            await until(lambda: call.lag > 60, 10)
            assert call.may_speak
            with pytest.raises(KeyRefused, match="revoked") as refused:
                await recall.read(CALL)
            assert old.key not in str(refused.value)
            file.write_text(await new_key(keys))
            await until(lambda: call.lag < 10, 10)
            assert call.state is CallState.HOLDING
            assert await call.flush(5) or call.lag < 10
        assert await said(recall) == spoken


async def test_a_key_of_too_low_a_role_says_so(tmp_path: Path, keys: Keys) -> None:
    key = (await keys.create("default", "read", "a reader's")).key
    async with server(tmp_path) as (_, url), Recall.open(url, api_key=key) as recall:
        assert (await recall.read(CALL)).fresh
        with pytest.raises(KeyRefused, match="role"):
            await recall.erase(CALL)
        call = recall.resume(CALL)
        call.start()
        assert await call.ready(2)
        call.record_turn("user", "hello")
        await anyio.sleep(0.5)
        assert call.state is CallState.ACQUIRING
        assert call.may_speak
        assert call.lag == 1
        await call.aclose()
