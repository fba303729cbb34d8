"""A thread that does a store's disk work, so that no disk ever holds up an event loop.

Jobs are sorted by key (a call). All jobs of one key that have gathered are served in one go and
in the order they were asked; what cannot be served now because somebody else is in the way
(`Busy`) is set aside and tried again later, so that one key never holds up another. The asker
waits with a bound of its own: it is answered even if the thread hangs in the disk.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from ..errors import Closed, StoreUnavailable
from .jobs import Busy, Job, answer

__all__ = ["Servant", "StoreThread"]

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")

JOBS_WAITING = 10_000
"""How many jobs may wait for one thread; the next is refused at once."""
FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 0.00025, 1.5, 0.02
"""Seconds until a job that was set aside is tried again."""
FORK_PATIENCE = 1.0
"""How many seconds a fork waits for a thread to finish what it is doing."""


class Servant(Protocol[S_co]):
    """Does the work of one thread; no other thread calls it, but for a fork."""

    def serve(self, key: str, works: Sequence[Callable[[S_co], Any]], creates: bool) -> list[Any]:
        """Return each work's outcome, a value or an exception; raise Busy if nothing was done."""

    def close(self) -> None:
        """Close all files, at the end. Never raises."""

    def before_fork(self) -> None:
        """Close what a child must not inherit; it is opened anew when needed. Never raises."""

    def after_fork_in_child(self) -> None:
        """Drop what is the parent's. Never raises."""


class _Backlog(Generic[S]):
    """The jobs of one key that wait, and when they are due."""

    __slots__ = ("due", "jobs", "pause")

    def __init__(self) -> None:
        self.jobs: list[Job[S, Any]] = []
        self.due = 0.0
        self.pause = FIRST_PAUSE

    def set_aside(self, busy: Busy) -> None:
        for job in self.jobs:
            job.why = busy.why
        self.due = time.monotonic() + (self.pause if busy.pause is None else busy.pause)
        self.pause = min(self.pause * PAUSE_GROWTH, LONGEST_PAUSE)


class StoreThread(Generic[S]):
    """One thread and its servant; both start with the first job."""

    def __init__(self, name: str, hire: Callable[[], Servant[S]], timeout: float) -> None:
        self.forked_unclean = False
        """In a child: the fork came while the thread hung, so its files are still shared."""
        self._parked = False
        self._name = name
        self._hire = hire
        self._timeout = timeout
        self._queue: SimpleQueue[Job[S, Any] | None] = SimpleQueue()
        self._backlogs: dict[str, _Backlog[S]] = {}
        self._set_aside = 0
        self._servant: Servant[S] | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._starting = threading.Lock()
        self._working = threading.Lock()
        _THREADS.add(self)

    async def ask(
        self, key: str, work: Callable[[S], T], *, creates: bool = False, endless: bool = False
    ) -> T:
        """Have `work` done and return its result; `endless` waits until it is not Busy.

        Raises:
            Closed: The thread was closed.
            StoreUnavailable: No answer within the timeout, or too many jobs wait.
            Exception: Whatever `work` raised.
        """
        if self._closing:
            raise Closed("the store was closed")
        if self._queue.qsize() + self._set_aside >= JOBS_WAITING:
            raise StoreUnavailable(f"{JOBS_WAITING} requests wait already; nothing was done")
        job = Job(key, work, creates, inf if endless else self._timeout)
        self._start()
        self._queue.put(job)
        return await job.answer()

    async def aclose(self) -> None:
        """Finish what was accepted and end the thread; doing it twice changes nothing.

        Raises:
            StoreUnavailable: The thread hangs in the disk.
        """
        self._closing = True
        self._queue.put(None)
        deadline = time.monotonic() + self._timeout + FORK_PATIENCE
        while self._thread is not None and self._thread.is_alive():
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"{self._name} hangs in the disk and was left behind")
            await asyncio.sleep(0.001)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
                self._thread.start()

    def _main(self) -> None:
        while self._gather():
            with self._working:
                self._serve_due()
        with self._working:
            if self._servant is not None:
                self._servant.close()

    def _gather(self) -> bool:
        """Wait for a job or for one to be due, take all; return False when it is the end."""
        with suppress(Empty):
            self._sort(self._queue.get(timeout=self._idle_for()))
            while True:
                self._sort(self._queue.get_nowait())
        self._set_aside = sum(len(backlog.jobs) for backlog in self._backlogs.values())
        return bool(self._backlogs) or not self._closing

    def _idle_for(self) -> float | None:
        if not self._backlogs:
            return 0 if self._closing else None
        due = min(backlog.due for backlog in self._backlogs.values())
        return max(0.0, due - time.monotonic())

    def _sort(self, job: Job[S, Any] | None) -> None:
        if job is not None:
            self._backlogs.setdefault(job.key, _Backlog()).jobs.append(job)

    def _serve_due(self) -> None:
        now = time.monotonic()
        for key, backlog in list(self._backlogs.items()):
            if backlog.due <= now:
                self._serve(key, backlog)

    def _serve(self, key: str, backlog: _Backlog[S]) -> None:
        backlog.jobs = [job for job in backlog.jobs if job.wanted]
        outcomes = self._outcomes(key, backlog) if backlog.jobs else []
        if outcomes is not None:
            del self._backlogs[key]
            answer(backlog.jobs, outcomes)

    def _outcomes(self, key: str, backlog: _Backlog[S]) -> Sequence[Any] | None:
        """Return None if the jobs were set aside."""
        jobs = backlog.jobs
        try:
            if self._servant is None:
                self._servant = self._hire()
            works = [job.work for job in jobs]
            return self._servant.serve(key, works, any(job.creates for job in jobs))
        except Busy as busy:
            if self._closing and jobs[0].endless:
                return [Closed("the store was closed") for _ in jobs]
            backlog.set_aside(busy)
            return None
        except Exception as error:
            return [error] * len(jobs)

    def before_fork(self) -> None:
        """Wait until the thread is between two jobs, and have the servant prepare."""
        self._parked = self._working.acquire(timeout=FORK_PATIENCE)
        if self._parked and self._servant is not None:
            self._servant.before_fork()

    def after_fork_in_parent(self) -> None:
        """Let the thread go on."""
        if self._parked:
            self._parked = False
            self._working.release()

    def after_fork_in_child(self) -> None:
        """Leave everything to the parent: the thread does not exist here."""
        _THREADS.discard(self)
        self.forked_unclean = not self._parked
        if self._servant is not None:
            self._servant.after_fork_in_child()
            # Kept for ever: what is left open is the parent's and must not even be closed here.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._servant))


_THREADS: WeakSet[StoreThread[Any]] = WeakSet()


def _each(method: Callable[[StoreThread[Any]], None]) -> Callable[[], None]:
    def run() -> None:
        for thread in list(_THREADS):
            method(thread)

    return run


os.register_at_fork(
    before=_each(StoreThread.before_fork),
    after_in_parent=_each(StoreThread.after_fork_in_parent),
    after_in_child=_each(StoreThread.after_fork_in_child),
)
