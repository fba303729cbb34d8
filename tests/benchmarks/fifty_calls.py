"""Fifty calls in one process: how many turns a second, how late the latest, how soon all began."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain, islice
from pathlib import Path
from statistics import median

from recall_livekit import Call, Recall

from .figures import median_ms, p99_ms
from .raw import RawLog, entry_of, raw_logs
from .recorded import copied, record_calls, sentences, url_of
from .registry import Row, Scale, benchmark
from .resumed import Resumed, end
from .sessions import Plain, new_session

CALLS = 50
IN_FLIGHT = 8
"""How many of a call's turns wait to be durable where turns come faster than the disk writes."""
WITHIN_S = 10.0


@benchmark("turns_saturated_50", "turns_closed_loop_50")
def saturated(scale: Scale) -> Iterable[Row]:
    calls, seconds = scale.of(CALLS, 3), scale.of(30, 1) / 10
    with tempfile.TemporaryDirectory() as directory, raw_logs(Path(directory), calls) as logs:
        figures = asyncio.run(_rates(Path(directory), logs, seconds, scale.of(3, 1)))
    ours, one_by_one, alone = (median(figure) for figure in zip(*figures, strict=True))
    yield Row("turns_saturated_50", ours, "per s", alone, "> 3,000 per s")
    yield Row("turns_closed_loop_50", one_by_one, "per s", alone)


@benchmark("turn_p99_50_calls")
def turn_p99(scale: Scale) -> Iterable[Row]:
    calls, turns, every = scale.of(CALLS, 3), scale.of(20, 2), scale.of(10, 1) / 10
    with tempfile.TemporaryDirectory() as directory, raw_logs(Path(directory), calls) as logs:
        ours, alone = asyncio.run(_latencies(Path(directory), logs, turns, every))
    return [Row("turn_p99_50_calls", p99_ms(ours), "ms", p99_ms(alone), "< 15 ms")]


@benchmark("start_50_calls")
def start_together(scale: Scale) -> Iterable[Row]:
    calls, rounds = scale.of(CALLS, 3), scale.of(10, 1)
    with tempfile.TemporaryDirectory() as directory:
        pairs = asyncio.run(_starts(Path(directory) / "records", calls, rounds))
    ours, alone = ([pair[number] for pair in pairs] for number in (0, 1))
    return [Row("start_50_calls", median_ms(ours), "ms", median_ms(alone), "<= 500 ms over floor")]


# ---- turns a second


async def _rates(
    directory: Path, logs: Sequence[RawLog], seconds: float, rounds: int
) -> list[tuple[float, float, float]]:
    async with open_calls(directory / "records", len(logs)) as calls:
        return [
            (
                await _rate(calls, seconds, IN_FLIGHT),
                await _rate(calls, seconds, 1),
                _raw_rate(logs, seconds),
            )
            for _ in range(rounds)
        ]


async def _rate(calls: Sequence[Call], seconds: float, in_flight: int) -> float:
    began = time.perf_counter()
    until = began + seconds
    counts = await asyncio.gather(*(_saturate(call, until, in_flight) for call in calls))
    return sum(counts) / (time.perf_counter() - began)


async def _saturate(call: Call, until: float, in_flight: int) -> int:
    """Has so many turns wait at a time; returns how many became durable."""
    texts, count = sentences(), 0
    while time.perf_counter() < until:
        for text in islice(texts, in_flight):
            call.record_turn("user", text)
        await call.flush(seconds=WITHIN_S)
        count += in_flight
    return count - call.lag


def _raw_rate(logs: Sequence[RawLog], seconds: float) -> float:
    """One commit a turn, from one thread, over as many files."""
    texts, count = sentences(), 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        for log in logs:
            log.commit(entry_of(next(texts)))
            count += 1
    return count / (time.perf_counter() - began)


# ---- how late


async def _latencies(
    directory: Path, logs: Sequence[RawLog], turns: int, every: float
) -> tuple[list[float], list[float]]:
    async with open_calls(directory / "records", len(logs)) as calls:
        ours = await asyncio.gather(*(speak(call, spoken(turns, every)) for call in calls))
    with ThreadPoolExecutor(1) as thread:
        alone = await asyncio.gather(
            *(_commit_each(thread, log, spoken(turns, every)) for log in logs)
        )
    return list(chain.from_iterable(ours)), list(chain.from_iterable(alone))


async def speak(call: Call, texts: AsyncIterator[str]) -> list[float]:
    took: list[float] = []
    async for text in texts:
        began = time.perf_counter()
        call.record_turn("user", text)
        await call.flush(seconds=WITHIN_S)
        took.append(time.perf_counter() - began)
    return took


async def _commit_each(
    thread: ThreadPoolExecutor, log: RawLog, texts: AsyncIterator[str]
) -> list[float]:
    took: list[float] = []
    loop = asyncio.get_running_loop()
    async for text in texts:
        began = time.perf_counter()
        await loop.run_in_executor(thread, log.commit, entry_of(text))
        took.append(time.perf_counter() - began)
    return took


async def spoken(turns: int, every: float) -> AsyncIterator[str]:
    """One text in each span of `every` seconds, at any moment of it."""
    for text in islice(sentences(), turns):
        moment = random.random() * every
        await asyncio.sleep(moment)
        yield text
        await asyncio.sleep(every - moment)


# ---- how soon


async def _starts(recorded: Path, calls: int, rounds: int) -> list[tuple[float, float]]:
    await record_calls(recorded, 20, calls)
    await _start_plain(1)  # what is imported late is imported now
    return [
        (await _start_resumed(recorded, calls), await _start_plain(calls)) for _ in range(rounds)
    ]


async def _start_plain(calls: int) -> float:
    return await _start(Plain() for _ in range(calls))


async def _start_resumed(recorded: Path, calls: int) -> float:
    with copied(recorded) as directory:
        async with Recall.open(url_of(directory)) as recall:
            return await _start(Resumed(recall, f"call-{number}") for number in range(calls))


async def _start(agents: Iterable[Plain | Resumed]) -> float:
    """Seconds until every agent has entered, and every call is held."""
    began = time.perf_counter()
    started = [(new_session(), agent) for agent in agents]
    await asyncio.gather(*(session.start(agent) for session, agent in started))
    await asyncio.wait_for(asyncio.gather(*(_ready(agent) for _, agent in started)), WITHIN_S)
    took = time.perf_counter() - began
    await asyncio.gather(*(end(session, agent) for session, agent in started))
    return took


async def _ready(agent: Plain | Resumed) -> None:
    await agent.entered
    if isinstance(agent, Resumed):
        await agent.call.holding(seconds=WITHIN_S)


# ---- many at once


@asynccontextmanager
async def open_calls(directory: Path, count: int) -> AsyncIterator[list[Call]]:
    """Calls of one process that are held."""
    async with Recall.open(url_of(directory)) as recall, AsyncExitStack() as stack:
        calls = [recall.resume(f"call-{number}") for number in range(count)]
        for call in calls:
            await stack.enter_async_context(call)
        yield calls
