"""What a Recall server tells of its calls makes the watcher look, and is never believed alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from recall_livekit.call_ids import WATCHER_CALL_ID
from recall_livekit.engine.news import CallEvent

from .house import House
from .running import Running, house, replaced, virtual


class Telling:
    """The records as a Recall server has them: it tells of its calls."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.told: asyncio.Queue[CallEvent] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def events(self) -> AsyncGenerator[CallEvent, None]:
        yield CallEvent(event="missed")
        while True:
            yield await self.told.get()


@asynccontextmanager
async def told(here: House) -> AsyncIterator[tuple[Running, Telling]]:
    running = Running(here, agent_name="support")
    telling = Telling(running.process.recall._transport)
    running.process.recall._transport = telling
    try:
        await asyncio.sleep(0.5)
        yield running, telling
    finally:
        await running.stop()


@virtual
async def test_a_broken_stream_and_one_silence_are_enough() -> None:
    async with house() as here, told(here) as (watch, telling):
        agent = await here.call("billing")
        await asyncio.sleep(10.3)
        agent.freeze()
        telling.told.put_nowait(CallEvent(event="broken", call_id="billing", epoch=1))
        assert await replaced(here, "billing", agent, within=2) < 0.7
        assert watch.counts.silences == 1


@virtual
async def test_a_broken_stream_of_an_agent_that_answers_means_nothing() -> None:
    async with house() as here, told(here) as (_, telling):
        agent = await here.call("billing")
        await asyncio.sleep(10)
        for kind in ("broken", "lapsed", "released", "taken", "broken") * 5:
            telling.told.put_nowait(
                CallEvent.model_validate({"event": kind, "call_id": "billing", "epoch": 1})
            )
            await asyncio.sleep(0.3)
        assert here.speaking("billing") == [agent]
        assert here.dispatched == []
        for pause in range(10):  # busy for a moment: the doubt was settled long ago
            await asyncio.sleep(1 + pause / 10)
            agent.frozen = True
            await asyncio.sleep(0.5)
            agent.frozen = False
        assert here.evicted == []


@virtual
async def test_a_sign_of_an_epoch_that_is_past_is_no_doubt() -> None:
    async with house() as here, told(here) as (_, telling):
        first = await here.call("billing")
        await asyncio.sleep(6)
        first.kill()
        second = await here.agent("billing", besides=first)
        await asyncio.sleep(3)
        second.frozen = True
        telling.told.put_nowait(CallEvent(event="broken", call_id="billing", epoch=1))
        await asyncio.sleep(0.5)  # one silence, and an answer to the second question
        second.frozen = False
        await asyncio.sleep(5)
        assert here.speaking("billing") == [second]


@virtual
async def test_events_that_were_missed_make_it_look_everywhere() -> None:
    async with house() as here, told(here) as (watch, telling):
        agent = await here.call("billing")
        await asyncio.sleep(10)
        telling.told.put_nowait(CallEvent(event="broken", call_id=WATCHER_CALL_ID, epoch=1))
        await asyncio.sleep(2)
        assert not watch.watcher._signs
        looks = watch.counts.looks
        telling.told.put_nowait(CallEvent(event="missed"))
        await asyncio.sleep(0.1)
        assert watch.counts.looks == looks + 1
        agent.kill()
        telling.told.put_nowait(CallEvent(event="lapsed", call_id="billing", epoch=1))
        await replaced(here, "billing", agent, within=1)
