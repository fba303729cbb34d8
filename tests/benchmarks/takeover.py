"""How soon a waiting worker has the call when its holder's process dies, or stands still."""

from __future__ import annotations

import asyncio
import fcntl
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from recall_livekit import CallState, Recall, Settings

from .children import Child, child, tell
from .figures import MS, median_ms
from .recorded import LENGTHS, record_calls, sentences, url_of
from .registry import Row, Scale, benchmark

CALL = "call-0"
TURN_EVERY_S = 0.1
SETTLE_S = 0.15  # it says that it will wait just before it does
LIFETIME_S = 3600.0


@benchmark("takeover_sigkill")
def takeover_sigkill(scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        ours, alone = asyncio.run(_killed(Path(directory), scale.of(20, 1)))
    return [Row("takeover_sigkill", median_ms(ours), "ms", median_ms(alone), "< 100 ms")]


@benchmark(*(f"takeover_sigkill_{turns}" for turns in LENGTHS))
def takeover_lengths(scale: Scale) -> Iterable[Row]:
    """The call had so many turns before. Nobody says more meanwhile: it stays as long as that."""
    lengths = {turns: scale.of(turns, 10) for turns in LENGTHS}
    with tempfile.TemporaryDirectory() as directory:
        *figures, alone = asyncio.run(_killed_in_turn(Path(directory), lengths, scale.of(30, 1)))
    for turns, ours in zip(LENGTHS, figures, strict=True):
        name = f"takeover_sigkill_{turns}"
        yield Row(name, median_ms(ours), "ms", median_ms(alone), "< 100 ms")


@benchmark("takeover_sigstop")
def takeover_sigstop(scale: Scale) -> Iterable[Row]:
    """The floor is the TTL: nobody can know sooner that a silent holder is gone."""
    ttl = Settings().lease_ttl if not scale.tiny else 2.0
    with tempfile.TemporaryDirectory() as directory:
        stopped = asyncio.run(_stopped(Path(directory), scale.of(5, 1), ttl))
    return [Row("takeover_sigstop", median_ms(stopped), "ms", MS * ttl, "<= TTL + 300 ms")]


async def _killed(directory: Path, rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    alone: list[float] = []
    async with (
        Relay(directory, work_on_call, directory / "records") as calls,
        Relay(directory, hold_flock, directory / "flock") as flocks,
    ):
        for _ in range(rounds):
            ours.append(await calls.lose_holder(signal.SIGKILL))
            alone.append(await flocks.lose_holder(signal.SIGKILL))
    return ours, alone


async def _killed_in_turn(
    directory: Path, lengths: Mapping[int, int], rounds: int
) -> list[list[float]]:
    """Seconds of each length, and at last of the floor: what drifts, drifts for all."""
    relays = [Relay(directory, hold_call, directory / str(name)) for name in lengths]
    relays.append(Relay(directory, hold_flock, directory / "flock"))
    async with AsyncExitStack() as stack:
        for name, turns in lengths.items():
            await record_calls(directory / str(name), turns)
        for relay in relays:
            await stack.enter_async_context(relay)
        took = [
            [await relay.lose_holder(signal.SIGKILL) for relay in relays] for _ in range(rounds)
        ]
    return [list(figures) for figures in zip(*took, strict=True)]


async def _stopped(directory: Path, rounds: int, ttl: float) -> list[float]:
    async with Relay(directory, work_on_call, directory / "records", ttl) as calls:
        return [await calls.lose_holder(signal.SIGSTOP) for _ in range(rounds)]


class Relay:
    """A process that holds something and one that waits for it, who is the next holder."""

    def __init__(self, directory: Path, run: Callable[..., None], *arguments: object) -> None:
        self._directory = directory
        self._run = run
        self._arguments = arguments
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as self._stack:
            self._holder = await self._start("holding")
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def lose_holder(self, how: signal.Signals) -> float:
        """Seconds from the signal to the holder until the waiter holds."""
        waiter = await self._start("waiting")
        await asyncio.sleep(SETTLE_S)
        lost = time.monotonic()
        self._holder.send(how)
        holding = await waiter.told("holding")
        self._holder = waiter
        return holding - lost

    async def _start(self, state: str) -> Child:
        started = await self._stack.enter_async_context(
            child(self._directory, self._run, *self._arguments)
        )
        await started.told(state)
        return started


def work_on_call(records: str, ttl: str = "6") -> None:
    """In the child: wait for the call, hold it, and record ten turns a second."""
    asyncio.run(_work(records, float(ttl), sentences()))


def hold_call(records: str) -> None:
    """In the child: the same, and record nothing."""
    asyncio.run(_work(records, Settings().lease_ttl, ()))


async def _work(records: str, ttl: float, texts: Iterable[str]) -> None:
    url = records if "://" in records else url_of(Path(records))
    recall = Recall.open(url, settings=Settings(lease_ttl=ttl))
    call = recall.resume(CALL)
    call.subscribe(_tell_state)
    call.start()
    await call.holding(seconds=LIFETIME_S)
    for text in texts:
        call.record_turn("assistant", text)
        await asyncio.sleep(TURN_EVERY_S)
    await asyncio.sleep(LIFETIME_S)


def _tell_state(state: CallState) -> None:
    words = {CallState.HOLDING: "holding", CallState.STANDBY: "waiting"}
    if state in words:
        tell(words[state], time.monotonic())


def hold_flock(path: str) -> None:
    """In the child: the same with nothing but a lock on a file."""
    with Path(path).open("w") as file:
        tell("waiting", time.monotonic())
        fcntl.flock(file, fcntl.LOCK_EX)
        tell("holding", time.monotonic())
        time.sleep(LIFETIME_S)
