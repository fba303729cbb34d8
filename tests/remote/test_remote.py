"""The client of a server: the same handle, over a wire, whatever answers at the other end."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from recall_livekit import CallState, Origin, Recall, Settings, StoreUnavailable
from recall_livekit.errors import KeyRefused
from recall_livekit.stores.memory import MemoryStore

from ..call.test_call import CALL, said, until
from ..conftest import OpenRecall, transport_of
from .children import ROOT
from .serving import Servers, servers

pytestmark = pytest.mark.anyio
KEY = "recall_secret"


@pytest.fixture
async def served() -> AsyncIterator[Servers]:
    async with servers() as opened:
        yield opened


# --- the same over both ---------------------------------------------------------------------------


@pytest.mark.over_http
async def test_all_that_can_be_known_of_calls_is_the_same(open_recall: OpenRecall) -> None:
    recall = open_recall()
    async with recall.resume("long call") as call:
        for number in range(1100):
            call.record_turn("user", f"turn {number} " + "x" * (9000 if number % 2 else 0))
        assert await call.flush(20)
    async with recall.resume("a second", agent_name="n" * 300) as call:
        call.record_turn("user", "hello")
        await call.flush(2)
        summaries = {one.call_id: one async for one in recall.summaries()}
    assert sorted(summaries) == ["a second", "long call"]
    assert (summaries["long call"].turns, summaries["long call"].state) == (1100, "lapsed")
    assert summaries["a second"].state == "live"
    assert sorted([call_id async for call_id in recall.calls()]) == ["a second", "long call"]
    turns = await recall.turns("long call")
    assert [turn.seq for turn in turns] == list(range(1, 1101))
    entries = await recall.entries("long call")
    assert [entry.kind for entry in entries[:2]] == ["run", "lease"]
    assert await recall.entries("long call", 2, 3) == entries[2:5]
    assert await recall.entries("long call", 10_000) == []
    await recall.erase("long call")
    assert list(await recall.turns("long call")) == []


@pytest.mark.over_http
@pytest.mark.parametrize(
    ("verdict", "caller", "run", "asked"),
    [
        (True, "bob", 1, 1),
        (False, "anna", 2, 1),
        ("raises", "anna", 2, 1),
        (None, "anna", 1, 0),
        (None, "bob", 2, 0),
    ],
)
async def test_same_call_decides_whether_another_room_goes_on(
    open_recall: OpenRecall, verdict: object, caller: str, run: int, asked: int
) -> None:
    async with open_recall().resume(CALL, room_sid="RM_1", caller="anna") as call:
        call.record_turn("user", "hello")
    seen: list[tuple[Origin, Origin]] = []

    def same_call(previous: Origin, current: Origin) -> bool:
        seen.append((previous, current))
        if verdict == "raises":
            raise RuntimeError("the application's own fault")
        return bool(verdict)

    recall = open_recall(same_call=None if verdict is None else same_call)
    shown = await transport_of(recall).read(CALL, Origin(room_sid="RM_2", caller=caller))
    assert shown.briefing.fresh is (run == 2), "before it has the lease, too"
    assert shown.run == (1 if run == 1 else 0)
    async with recall.resume(CALL, room_sid="RM_2", caller=caller) as call:
        assert call.briefing.run == run
        assert call.briefing.fresh is (run == 2)
        call.record_turn("user", "again")
        assert await call.flush(2)
    assert bool(seen) is bool(asked)
    for previous, current in seen:
        assert (previous.room_sid, previous.caller) == ("RM_1", "anna")
        assert (current.room_sid, current.caller) == ("RM_2", caller)
        assert 0 <= current.at - previous.at < 10


@pytest.mark.over_http
async def test_a_verdict_reaches_records_written_before_the_lease(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_recall().resume(CALL, room_sid="RM_1", caller="anna") as call:
        call.record_turn("user", "hello")
    recall = open_recall(same_call=lambda *_: False, retry_first=0.01)

    async def never(*_: object) -> None:
        raise StoreUnavailable("no answer to the acquire")

    monkeypatch.setattr(transport_of(recall), "acquire", never)
    call = recall.resume(CALL, room_sid="RM_2", caller="anna")
    call.start()
    call.record_turn("user", "another call")
    assert await call.flush(3)
    assert await said(recall) == ["another call"]
    await call.aclose()


@pytest.mark.over_http
async def test_a_worker_that_closes_is_not_taken_for_dead_while_it_still_writes(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall()
    append = transport_of(recall).append

    async def slowly(*what: Any) -> Any:
        await anyio.sleep(1.0)
        return await append(*what)

    monkeypatch.setattr(transport_of(recall), "append", slowly)
    standby = open_recall().resume(CALL)
    async with recall.resume(CALL) as call:
        standby.start()
        await until(lambda: standby.state is CallState.STANDBY)
        call.record_turn("user", "the last words")
    assert call.lag == 0
    assert await standby.holding(1)
    assert [turn.content for turn in standby.briefing.turns] == ["the last words"]
    await standby.aclose()


# --- what is left behind --------------------------------------------------------------------------


async def test_closing_leaves_no_task_and_no_connection(served: Servers) -> None:
    url = served.open(MemoryStore())
    await anyio.sleep(0.1)
    before = asyncio.all_tasks()
    recall, other = Recall.open(url), Recall.open(url)
    call, standby = recall.resume(CALL), other.resume(CALL)
    call.start()
    assert await call.holding(2)
    standby.start()
    await until(lambda: standby.state is CallState.STANDBY)
    call.record_turn("user", "hello")
    assert await call.flush(2)
    await standby.aclose()
    await call.aclose()
    await recall.aclose()
    await other.aclose()
    await anyio.sleep(0.1)  # for the server to see it
    assert asyncio.all_tasks() <= before
    for closed in (recall, other):
        with pytest.raises(Exception, match="closed"):
            await closed.read(CALL)


async def test_a_handle_closed_under_a_live_call_ends_its_stream_too(
    served: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    recall = Recall.open(served.open(MemoryStore()))
    call = recall.resume(CALL)
    call.start()
    assert await call.holding(2)
    await until(lambda: "recall stream" in {task.get_name() for task in asyncio.all_tasks()})
    await recall.aclose()
    await anyio.wait_all_tasks_blocked()
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert not names & {"recall stream", "recall flight of records"}
    assert "a stream ended early" not in caplog.text
    await call.aclose()


LOOPS = """
import asyncio, sys
from recall_livekit import Recall

async def once(number):
    async with recall.resume("a room") as call:
        call.record_turn("user", str(number))
        assert await call.flush(5)
    return len(await recall.turns("a room"))

recall = Recall.open(sys.argv[1])
print([asyncio.run(once(number)) for number in range(3)])
asyncio.run(recall.aclose())
"""


async def test_a_handle_may_be_used_in_one_event_loop_after_the_other(served: Servers) -> None:
    command = [sys.executable, "-c", LOOPS, served.open(MemoryStore())]
    with anyio.fail_after(30):
        done = await anyio.run_process(command, cwd=ROOT)
    assert done.stdout.decode().strip() == "[1, 2, 3]"


# --- what else may answer -------------------------------------------------------------------------

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """Whatever listens at an address."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()


def http(status: str, body: str, kind: str = "text/html", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}"
    return f"{head}\r\n{body}".encode()


def problem(name: str, status: int) -> str:
    kind = f"urn:recall-livekit:problem:{name}"
    return json.dumps({"type": kind, "title": name, "status": status})


HTML = "<html><body>Welcome to nginx!</body></html>"
PROBLEM = "application/problem+json"
GARBAGE = {
    "a web page": http("200 OK", HTML),
    "some other JSON": http("200 OK", '{"ok": true}', "application/json"),
    "half of it": b'HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{"run":',
    "no HTTP": b"\x15\x03\x01\x00\x02\x02\x16 SSH-2.0-OpenSSH\r\n\r\n",
    "nothing": b"",
    "no content": http("204 No Content", ""),
    "502": http("502 Bad Gateway", HTML),
    "503": http("503 Service Unavailable", HTML),
    "504": http("504 Gateway Timeout", HTML),
    "404": http("404 Not Found", HTML),
    "413": http("413 Request Entity Too Large", HTML),
    "400": http("400 Bad Request", HTML),
    "a redirect": http("301 Moved", "", more="location: https://elsewhere.example\r\n"),
    "a fault": http("500 Oops", problem("recall-error", 500), PROBLEM),
    "closing": http("503 Closing", problem("closed", 503), PROBLEM),
    "what was not asked": http("409 Held", problem("outbox-full", 429), PROBLEM),
    "an error of a newer server": http("422 New", problem("new", 500), PROBLEM),
    "no problem at all": http("500 Oops", "not even JSON", PROBLEM),
    "an unknown problem": http("422 New", '{"type":"urn:x","title":"New","status":422}', PROBLEM),
}


@pytest.mark.parametrize("what", GARBAGE)
async def test_garbage_is_a_store_that_is_not_available_and_ends_no_call(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(GARBAGE[what])
        await writer.drain()

    settings = Settings(retry_first=0.01, retry_last=0.05, flush_wait=0.1)
    async with answering(answer) as url:
        recall = Recall.open(url, api_key=KEY, settings=settings)
        with anyio.fail_after(2), pytest.raises(StoreUnavailable) as refused:
            await recall.read(CALL)
        assert KEY not in str(refused.value)
        if what == "a redirect":
            assert "https://elsewhere.example" in str(refused.value)
        call = recall.resume(CALL)
        call.start()
        call.record_turn("user", "hello")
        await anyio.sleep(0.2)
        assert call.state is CallState.READING
        assert call.may_speak
        assert call.lag == 1
        await call.aclose()
        await recall.aclose()
    assert KEY not in caplog.text
    assert [record.message for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_proxy_that_lets_nobody_pass_is_a_key_that_is_refused(status: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(http(status, HTML))

    async with answering(answer) as url, Recall.open(url, api_key=KEY) as recall:
        with pytest.raises(KeyRefused, match=status) as refused:
            await recall.read(CALL)
        assert KEY not in str(refused.value)


async def test_garbage_to_a_holder_ends_no_call_and_loses_no_record(
    served: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    """Every kind of it, to every request of a live call, one after the other."""
    target = served.open(MemoryStore())
    host, port = target.removeprefix("http://").split(":")
    garbage: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if garbage:
            bad = garbage[0]
            await reader.readuntil(b"\r\n\r\n")
            writer.write(bad)
            await writer.drain()
            return
        there, back = await asyncio.open_connection(host, int(port))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pump, reader, back, tasks)
                tasks.start_soon(pump, there, writer, tasks)
        finally:
            back.close()

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tasks: anyio.abc.TaskGroup
    ) -> None:
        with suppress(OSError):
            while not garbage and (data := await until_garbage(reader)):
                writer.write(data)
        tasks.cancel_scope.cancel()

    async def until_garbage(reader: asyncio.StreamReader) -> bytes:
        while not garbage:
            with anyio.move_on_after(0.02):
                return await reader.read(65536)
        return b""

    settings = Settings(retry_first=0.01, retry_last=0.05)
    async with answering(answer) as url, Recall.open(url, settings=settings) as recall:
        async with recall.resume(CALL) as call:
            for number, bad in enumerate(GARBAGE.values()):
                garbage[:] = [bad]
                call.record_turn("user", f"turn {number}")
                call._keeper.check_now()
                await anyio.sleep(0.1)
                assert call.state is CallState.HOLDING
                garbage.clear()
                assert await call.flush(2), GARBAGE.keys()
        assert await said(recall) == [f"turn {number}" for number in range(len(GARBAGE))]
    assert [record.message for record in caplog.records if record.exc_info] == []


async def test_a_server_without_tls_at_an_https_address_says_what_went_wrong(
    served: Servers,
) -> None:
    url = served.open(MemoryStore()).replace("http:", "https:")
    async with Recall.open(url, api_key=KEY) as recall:
        with pytest.raises(StoreUnavailable, match="SSL") as refused:
            await recall.read(CALL)
        assert KEY not in str(refused.value)


async def test_a_connection_closed_under_us_is_tried_again_at_once(served: Servers) -> None:
    requests = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        for turn in range(2):
            await reader.readuntil(b"\r\n\r\n")
            requests += 1
            if turn == 1:
                return  # closed just as the next request came
            writer.write(http("503 Service Unavailable", ""))
            await writer.drain()

    async with answering(answer) as url, Recall.open(url) as recall:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="503"):
                await recall.read(CALL)
    assert requests == 3


async def test_a_server_that_drains_is_left_for_another_without_a_takeover() -> None:
    async with servers() as first, servers() as second:
        store = MemoryStore()
        url = first.open(store)
        port = int(url.rsplit(":", 1)[1])
        async with Recall.open(url) as recall:
            call = recall.resume(CALL)
            call.start()
            assert await call.holding(2)
            first.leave()
            await anyio.sleep(0.3)
            second.open(MemoryStore(store.bucket), port=port)
            call.record_turn("user", "goes on")
            assert await call.flush(3)
            assert (call.state, call.epoch) == (CallState.HOLDING, 1)
            await call.aclose()


async def test_the_first_outage_and_the_next_are_both_told(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recall = open_recall()
    async with recall.resume(CALL) as call:
        renew = transport_of(recall).renew

        async def away(*_: object) -> None:
            raise StoreUnavailable("away")

        for outage in (1, 2):
            for transport in (away, renew):
                monkeypatch.setattr(transport_of(recall), "renew", transport)
                with caplog.at_level(logging.WARNING):
                    call._keeper.check_now()
                    await anyio.sleep(0.1)
            assert caplog.text.count("cannot be reached (away)") == outage
