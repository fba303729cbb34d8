"""The draw: workers that come and go on one call, in good and in bad weather, from one seed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from recall_livekit.errors import RecallError
from recall_livekit.stores.base import Store
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.testing.faults import FaultyStore

from .buckets import Door, SharedBucket
from .disk import Machine
from .erased import marker
from .hands import erase
from .judge import Judge
from .odds import CALM, Kind, Odds, settings, spooling
from .process import Process
from .table import Table, TableStore
from .worker import Worker

__all__ = ["Room", "World", "last_line"]


@dataclass(frozen=True, slots=True)
class Room:
    """Where a worker is."""

    sid: str | None
    caller: str | None


class World:
    """One call, its data, and everybody who has a hand in it."""

    def __init__(self, seed: int, odds: Odds) -> None:
        self.random = Random(seed)
        self.odds = odds
        self.kind: Kind = odds.kind or ("bucket", "table")[seed % 2]
        self.settings = settings(self.random.choice((600, 1 << 30)))
        self.spools = Random(f"{seed}, the spools")
        self.watchers = Random(f"{seed}, the watchers")
        self.trace: list[str] = []
        self.crashes = 0
        self.fault: tuple[str, str] | None = None
        self.judge = Judge(self.fail, self.note, self.settings.retained_chars)
        self.machines: list[Machine] = []
        if self.spools.random() < odds.spool:
            self._open_spools()
        self.over = asyncio.Event()
        self.workers: list[Worker] = []
        self.weather = CALM
        self._ghosts: list[asyncio.Task[None]] = []
        self.nowhere = Room(None, None)
        self._numbers = 0
        self._open_data()
        self.room = self.old_room = Room(f"RM_{self.marker()}", "anna")

    def _open_data(self) -> None:
        self.bucket = SharedBucket(self.judge)
        self.table = Table(self.judge)
        if self.kind == "table":
            self.judge.fairness.locked = self.table.locks.held

    def _open_spools(self) -> None:
        self.settings = spooling(self.settings, self.spools.choice((6000, 1 << 20)))
        machines = self.spools.choice((1, 2))
        self.machines = [Machine(self.judge.spools, self.spools) for _ in range(machines)]

    # --- what all use ---------------------------------------------------------------------------

    def note(self, what: str) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():9.4f} {what}")

    def fail(self, check: str, what: str) -> None:
        if self.fault is None:
            self.fault = (check, what)
            self.note(f"FAULT {check}: {what}")
            self.over.set()

    def _crashed(self, name: str, error: Exception) -> None:
        self.fail("crash", f"{name}: {error!r} at {last_line(error)}")

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def marker(self) -> str:
        return marker(self.number())

    def erased(self, there: int) -> None:
        """An eraser was told that it is done: then what was there when it began is gone."""
        begun = there - 1 if there - 1 in self.judge.ledger.erases else there
        if there and self.judge.erased.done < begun:
            self.fail("erasure", "an erasure was answered before it was done")

    async def judge_erasure(self) -> None:
        """Now and then the call is erased at the end, so that all of it is looked for."""
        if self.random.random() < 0.3:
            eraser = self.new_worker()
            await erase(self, eraser)

    def move(self) -> None:
        """Who comes from now on comes to a new room."""
        caller = self.random.choice(("anna", "bert"))
        self.old_room, self.room = self.room, Room(f"RM_{self.marker()}", caller)

    # --- processes ------------------------------------------------------------------------------

    def new_worker(self, machine: Machine | None = None) -> Worker:
        random = Random(self.random.random())
        skew = random.uniform(-self.odds.skew, self.odds.skew)
        if random.random() < self.odds.wrong_clock:
            skew += random.choice((-3600.0, 3600.0))
        name, new_id = f"p{self.number()}", lambda: f"{self.number():016x}"
        process = Process(name, new_id, partial(self._crashed, name), skew)
        store = FaultyStore(
            self._store(process), Random(random.random()), self.weather, timeout=0.4
        )
        if machine is None and self.machines:
            machine = self.spools.choice(self.machines)
        worker = Worker(self, process, store, random, machine)
        process.on_death.append(partial(self._died, worker))
        self.workers.append(worker)
        return worker

    def _store(self, process: Process) -> Store:
        if self.kind == "table":
            return TableStore(self.table, process)
        return MemoryStore(Door(self.bucket, process))

    def _died(self, worker: Worker) -> None:
        self.crashes += 1
        self.note(f"{worker.process.name} dies")
        if self.random.random() < self.odds.orphan:
            self.table.locks.orphan(worker.process)
        for late in worker.store._late:
            if self.kind == "bucket" and self.random.random() < 0.5:
                self._arrives_late(late)
        worker.store._late.clear()

    def _arrives_late(self, late: Callable[..., object]) -> None:
        """A request that was under way when its sender died comes in some time later."""
        assert isinstance(late, partial)
        ghost = getattr(MemoryStore(self.bucket), late.func.__name__)
        seconds = self.random.uniform(0.0, 5.0)

        async def arrive() -> None:
            await asyncio.sleep(seconds)
            try:
                await ghost(*late.args)
            except RecallError:
                return

        self._ghosts.append(asyncio.ensure_future(arrive()))

    def left(self, worker: Worker) -> None:
        if worker in self.workers:
            self.workers.remove(worker)


def last_line(error: BaseException) -> str:
    """Return where an error was raised; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
