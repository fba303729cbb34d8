"""The same through a Recall server on loopback."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import psutil

from recall_livekit import Call, Recall, Settings
from recall_livekit.wire import RecordsRequest, RecordsUnit

from .children import Child
from .fifty_calls import CALLS, speak, spoken
from .figures import MS, median_extra_ms, median_ms, p99_ms
from .load import Connection, Load, load
from .on_enter import WARM_UP, WITHIN_S, plain
from .recorded import record_calls, sentences, url_of
from .registry import Row, Scale, benchmark
from .resumed import Resumed, end
from .servers import bare_server, recall_server
from .sessions import new_session
from .takeover import Relay, work_on_call
from .turns import turn

LENGTHS = (10, 1_000, 10_000)
TURNS_A_SECOND = 20


# ---- one call


def _resume(turns: int, scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        recorded = Path(directory) / "records"
        ours, alone = asyncio.run(_pairs(recorded, scale.of(turns, 10), scale.of(60, 2)))
    extra, floor = median_extra_ms(ours, alone), median_ms(alone)
    return [Row(f"http_on_enter_resume_{turns}", extra, "ms", floor, "<= 10 ms extra")]


for _turns in LENGTHS:
    benchmark(f"http_on_enter_resume_{_turns}")(partial(_resume, _turns))


async def _pairs(recorded: Path, turns: int, rounds: int) -> tuple[list[float], list[float]]:
    await record_calls(recorded, turns)
    ours: list[float] = []
    alone: list[float] = []
    async with recall_server(recorded) as (port, _):
        for _ in range(WARM_UP + rounds):
            alone.append(await plain())
            ours.append(await _resumed(f"http://127.0.0.1:{port}"))
    return ours[WARM_UP:], alone[WARM_UP:]


async def _resumed(url: str) -> float:
    """Seconds from opening the server's address and construction to `on_resume`."""
    session = new_session()
    gc.collect()
    began = time.perf_counter()
    recall = Recall.open(url)
    agent = Resumed(recall, "call-0")
    await session.start(agent)
    entered_at = await asyncio.wait_for(agent.entered, WITHIN_S)
    await agent.call.holding(seconds=WITHIN_S)
    await agent.call.aclose("handover")  # the next round resumes it again
    await end(session, agent)
    await recall.aclose()
    return entered_at - began


@benchmark("http_turn_durable")
def turn_durable(scale: Scale) -> Iterable[Row]:
    """The floor is a round trip to a route that does nothing."""
    with tempfile.TemporaryDirectory() as directory:
        ours, alone = asyncio.run(_durable(Path(directory), scale.of(1_000, 20)))
    return [Row("http_turn_durable", median_ms(ours), "ms", median_ms(alone), "< 3 ms")]


async def _durable(directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    alone: list[float] = []
    async with (
        recall_server(directory / "records") as (port, _),
        bare_server(directory) as (bare_port, _),
        Recall.open(f"http://127.0.0.1:{port}") as recall,
        recall.resume("one") as call,
    ):
        bare = await Connection.to(bare_port)
        for number, text in zip(range(WARM_UP + rounds), sentences(), strict=False):
            ours.append(await turn(call, text))
            began = time.perf_counter()
            await bare.post("/", _unit("one", number + 1, text))
            alone.append(time.perf_counter() - began)
        bare.close()
    return ours[WARM_UP:], alone[WARM_UP:]


@benchmark("http_takeover_sigkill")
def takeover_sigkill(scale: Scale) -> Iterable[Row]:
    """The floor is the grace within which a live holder comes back."""
    with tempfile.TemporaryDirectory() as directory:
        ours = asyncio.run(_killed(Path(directory), scale.of(20, 1)))
    grace = MS * Settings().disconnect_grace
    return [Row("http_takeover_sigkill", median_ms(ours), "ms", grace, "<= grace + 300 ms")]


async def _killed(directory: Path, rounds: int) -> list[float]:
    async with (
        recall_server(directory / "records") as (port, _),
        Relay(directory, work_on_call, f"http://127.0.0.1:{port}") as calls,
    ):
        return [await calls.lose_holder(signal.SIGKILL) for _ in range(rounds)]


# ---- fifty calls of one worker


@benchmark("http_backlog_50x20")
def backlog(scale: Scale) -> Iterable[Row]:
    """How late the latest turn is durable, beside the same calls embedded: a backlog would grow
    with the seconds."""
    calls, turns = scale.of(CALLS, 3), scale.of(200, 5)
    with tempfile.TemporaryDirectory() as directory:
        ours, embedded = asyncio.run(_latencies(Path(directory), calls, turns))
    target = f"no backlog: < {MS / TURNS_A_SECOND:.0f} ms"
    return [Row("http_backlog_50x20", p99_ms(ours), "ms", p99_ms(embedded), target)]


async def _latencies(directory: Path, calls: int, turns: int) -> tuple[list[float], list[float]]:
    embedded = await _spoken_to(url_of(directory / "embedded"), calls, turns)
    async with recall_server(directory / "records") as (port, _):
        return await _spoken_to(f"http://127.0.0.1:{port}", calls, turns), embedded


async def _spoken_to(url: str, count: int, turns: int) -> list[float]:
    async with Recall.open(url) as recall, AsyncExitStack() as stack:
        calls: list[Call] = []
        for number in range(count):
            calls.append(await stack.enter_async_context(recall.resume(f"call-{number}")))
        every = 1 / TURNS_A_SECOND
        took = await asyncio.gather(*(speak(call, spoken(turns, every)) for call in calls))
    return list(chain.from_iterable(took))


# ---- the server alone


@benchmark("http_appends", "http_appends_p50", "http_appends_p99", "http_appends_cpu")
def appends(scale: Scale) -> Iterable[Row]:
    """Ten connections, one record each time; the floor is the route that does nothing."""
    connections, seconds = scale.of(10, 2), scale.of(50, 2) / 10
    with tempfile.TemporaryDirectory() as directory:
        (ours, our_cpu), (bare, bare_cpu) = asyncio.run(
            _loads(Path(directory), connections, seconds)
        )
    yield Row("http_appends", ours.rate, "per s", bare.rate)
    yield Row("http_appends_p50", median_ms(ours.took), "ms", median_ms(bare.took))
    yield Row("http_appends_p99", p99_ms(ours.took), "ms", p99_ms(bare.took))
    yield Row("http_appends_cpu", our_cpu, "ms", bare_cpu, "of the server's, a request")


async def _loads(
    directory: Path, connections: int, seconds: float
) -> tuple[tuple[Load, float], tuple[Load, float]]:
    units = [_units(f"call-{number}") for number in range(connections)]
    async with recall_server(directory / "records") as (port, server):
        url = f"http://127.0.0.1:{port}"
        async with Recall.open(url) as recall:
            for number in range(connections):
                await _opened(recall, f"call-{number}")
        ours = await _loaded(server, port, "/v1/records", units, seconds)
    async with bare_server(directory) as (port, server):
        return ours, await _loaded(server, port, "/", units, seconds)


async def _opened(recall: Recall, call_id: str) -> None:
    """Give the call a run, which is then without a holder."""
    async with recall.resume(call_id) as call:
        call.record_turn("user", "hello")


async def _loaded(
    server: Child, port: int, path: str, bodies: Sequence[Callable[[], bytes]], seconds: float
) -> tuple[Load, float]:
    process = psutil.Process(server.pid)
    before = sum(process.cpu_times()[:2])
    done = await load(port, path, bodies, seconds)
    used = max(sum(process.cpu_times()[:2]) - before, 0.01)
    return done, MS * used / len(done.took)


def _units(call_id: str) -> Callable[[], bytes]:
    """Bodies of a writer that has no lease: its records count all the same."""
    numbers, texts = itertools.count(1), sentences()
    return lambda: _unit(call_id, next(numbers), next(texts))


def _unit(call_id: str, number: int, text: str) -> bytes:
    record = {"kind": "turn", "at": 1.7e9, "role": "user", "content": text}
    unit = RecordsUnit.model_validate(
        {
            "call_id": call_id,
            "writer": "w" * 16,
            "first": number,
            "records": [record],
            "provisional": {"run": 1, "epoch_read": 1},
        }
    )
    return json.dumps(RecordsRequest(units=(unit,)).model_dump(mode="json")).encode()
