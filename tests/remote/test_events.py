"""What a watcher on a Recall server hears: doubts about a holder, and events of all calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import anyio
import pytest

from recall_livekit import Recall, Settings
from recall_livekit.engine.liveness import Liveness
from recall_livekit.engine.news import CallEvent
from recall_livekit.remote.http import AsyncClient
from recall_livekit.stores.memory import MemoryStore

from ..call.test_call import CALL, until
from ..conftest import OpenRecall, transport_of
from .serving import Servers, listening, servers
from .test_breaking import Frozen
from .wire import wire

pytestmark = pytest.mark.anyio
GRACE = 0.5


@pytest.fixture
async def served() -> AsyncIterator[Servers]:
    async with servers() as opened:
        yield opened


def opened(address: str, settings: Settings | None = None) -> Recall:
    return Recall.open(address, settings=settings, spool=False)


def events_of(recall: Recall) -> AsyncGenerator[CallEvent, None]:
    events = recall._transport.events()
    assert isinstance(events, AsyncGenerator)
    return events


async def told(events: AsyncIterator[CallEvent], seconds: float = 5.0) -> tuple[str, int]:
    with anyio.fail_after(seconds):
        event = await anext(events)
    return event.event, event.epoch


async def test_in_one_s_own_process_nobody_tells(open_recall: OpenRecall) -> None:
    assert transport_of(open_recall()).events() is None


async def test_doubt_comes_as_the_grace_begins(served: Servers) -> None:
    address = served.open(MemoryStore(), Settings(disconnect_grace=GRACE))
    holder, waiter = opened(address), opened(address)
    frozen, doubts = Frozen(holder), 0

    def doubt() -> None:
        nonlocal doubts
        doubts += 1

    await frozen.hold()
    await anyio.sleep(0.1)
    waits = asyncio.create_task(waiter._transport.wait_free(CALL, doubt=doubt))
    await anyio.sleep(0.2)
    assert doubts == 0
    broke = time.monotonic()
    await frozen.end()
    while not doubts:
        await anyio.sleep(0.005)
        assert time.monotonic() - broke < GRACE * 0.8
    assert not waits.done()
    assert await asyncio.wait_for(waits, 5) is Liveness.BROKEN
    assert GRACE * 0.9 < time.monotonic() - broke < GRACE + 0.4
    assert doubts == 1
    await holder.aclose()
    await waiter.aclose()


@pytest.mark.over_http
async def test_a_release_leaves_no_doubt(open_recall: OpenRecall) -> None:
    recall = open_recall()
    doubts: list[int] = []
    async with recall.resume(CALL):
        wait = transport_of(open_recall()).wait_free(CALL, doubt=lambda: doubts.append(1))
        waits = asyncio.create_task(wait)
        await anyio.sleep(0.2)
    assert await asyncio.wait_for(waits, 5) is Liveness.FREE
    assert doubts == []


async def test_events_of_every_call_come_on_one_stream(served: Servers) -> None:
    address = served.open(MemoryStore())
    watcher, worker = opened(address), opened(address)
    async with aclosing(events_of(watcher)) as events:
        assert await told(events) == ("missed", 0)
        async with worker.resume(CALL):
            assert await told(events) == ("taken", 1)
        while (last := await told(events)) == ("broken", 1):
            pass  # its stream may be seen to end before the release is
        assert last == ("released", 1)
    await worker.aclose()
    await watcher.aclose()


async def test_a_stream_that_broke_is_opened_anew_and_says_that_some_were_missed(
    served: Servers,
) -> None:
    address = served.open(MemoryStore())
    worker = opened(address)
    async with wire(address) as between:
        watcher = opened(between.address, Settings(stream_silence=1.5))
        async with aclosing(events_of(watcher)) as events:
            assert await told(events) == ("missed", 0)
            between.cut()
            assert await told(events) == ("missed", 0)
            between.drop()  # nobody is told that nothing comes any more
            async with worker.resume(CALL):
                next_one = asyncio.create_task(told(events, 10))
                await anyio.sleep(2)
                assert not next_one.done()
                between.heal()
                assert await next_one == ("missed", 0)
                assert await watcher.break_lease(CALL, 1)
                assert await told(events) == ("taken", 2)
                assert await told(events) == ("released", 2)
        await watcher.aclose()
    await worker.aclose()


async def test_a_server_that_comes_later_is_waited_for_in_growing_pauses(
    served: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    sock = listening()
    port = sock.getsockname()[1]
    sock.close()
    watcher = opened(f"http://127.0.0.1:{port}", Settings(retry_first=0.02, retry_last=0.2))
    async with aclosing(events_of(watcher)) as events:
        first = asyncio.create_task(told(events, 10))
        await anyio.sleep(1.0)
        assert not first.done()
        served.open(MemoryStore(), port=port)
        assert await first == ("missed", 0)
    warned = [record for record in caplog.records if "is not told" in record.message]
    assert len(warned) == 1, "once, not at every try"
    await watcher.aclose()


async def test_it_ends_when_the_handle_is_closed(served: Servers) -> None:
    watcher = opened(served.open(MemoryStore()))
    heard: list[str] = []
    hears = anyio.Event()

    async def listen() -> None:
        async for event in events_of(watcher):
            heard.append(event.event)
            hears.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        with anyio.fail_after(5):
            await hears.wait()
        with anyio.fail_after(4):
            await watcher.aclose()
    assert heard == ["missed"]


async def test_it_ends_when_the_application_closes_its_own_client(served: Servers) -> None:
    client = AsyncClient()
    address = served.open(MemoryStore())
    watcher = Recall.open(address, http_client=client, spool=False)
    async with aclosing(events_of(watcher)) as events:
        assert await told(events) == ("missed", 0)
        rest = asyncio.create_task(anext(events, None))
        await client.aclose()
        assert await asyncio.wait_for(rest, 5) is None
    await watcher.aclose()


async def test_one_who_leaves_early_keeps_no_connection(served: Servers) -> None:
    async with wire(served.open(MemoryStore())) as between:
        watcher = opened(between.address)
        async with aclosing(events_of(watcher)) as events:
            await told(events)
            assert between.open == 1
        await until(lambda: between.open == 0)
        await watcher.aclose()
