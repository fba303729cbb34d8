"""What is asked of a store's thread, and how the asker is answered: once, and in time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ..errors import Conflict, StoreUnavailable

__all__ = ["Busy", "Job", "answer", "each"]

S = TypeVar("S")
T = TypeVar("T")


class Busy(Exception):
    """Somebody else is in the way: try again after `pause` seconds (None: growing pauses)."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.pause = pause


def each(subject: S, works: Sequence[Callable[[S], Any]]) -> list[Any]:
    """Return what each work returned, or its Conflict; any other error ends them all."""
    outcomes: list[Any] = []
    for work in works:
        try:
            outcomes.append(work(subject))
        except Conflict as conflict:
            outcomes.append(conflict)
    return outcomes


class Job(Generic[S, T]):
    """One thing asked of a thread, answered once."""

    __slots__ = (
        "_deadline",
        "_future",
        "_timeout",
        "creates",
        "endless",
        "key",
        "loop",
        "why",
        "work",
    )

    def __init__(self, key: str, work: Callable[[S], T], creates: bool, timeout: float) -> None:
        self.key = key
        self.work = work
        self.creates = creates
        self.endless = timeout == math.inf
        self.why = "the disk does not answer"
        self.loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._future: asyncio.Future[T] = self.loop.create_future()

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits; what was given up is never done afterwards."""
        return not self._future.done() and time.monotonic() < self._deadline

    async def answer(self) -> T:
        """Return the work's result or raise its error, or StoreUnavailable after the timeout."""
        if self.endless:
            return await self._future
        timer = self.loop.call_later(self._timeout, self._give_up)
        try:
            return await self._future
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        why = f"no answer within {self._timeout:g} s: {self.why}; outcome unknown"
        self.settle(StoreUnavailable(why))

    def settle(self, outcome: Any) -> None:
        """Answer, in the loop's own thread."""
        if self._future.done():
            return
        if isinstance(outcome, Exception):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)


def answer(jobs: Sequence[Job[Any, Any]], outcomes: Sequence[Any]) -> None:
    """Answer from the thread: each loop is woken once for all of its jobs."""
    pairs = list(zip(jobs, outcomes, strict=True))
    for loop in {job.loop for job in jobs}:
        mine = [pair for pair in pairs if pair[0].loop is loop]
        with suppress(RuntimeError):  # The loop is closed: nobody waits there any more.
            loop.call_soon_threadsafe(_settle, mine)


def _settle(pairs: Sequence[tuple[Job[Any, Any], Any]]) -> None:
    for job, outcome in pairs:
        job.settle(outcome)
