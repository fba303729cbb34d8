"""One simulation from its seed to its verdict: a bad day, and what must be true after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recall_livekit.call import Call

from .hands import break_it, drain, erase, hurry
from .odds import CALM, Kind, Odds
from .virtual import run_virtual
from .worker import Worker
from .world import World

__all__ = ["Outcome", "simulate"]

HOLDS_WITHIN = 2.0 + 2.0
"""The TTL, and what a worker needs to read, to look and to write."""
DRAINS_WITHIN = 3.0
DRAIN_TRIES = 10
"""Half a second between two."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    kind: Kind
    fault: tuple[str, str] | None
    trace: list[str]
    steps: int
    takeovers: int
    crashes: int
    entries: int
    seconds: float
    """On the virtual clock."""

    def report(self, lines: int = 60) -> str:
        """Return what somebody needs to mend it."""
        check, what = self.fault or ("nothing", "all held")
        return "\n".join(
            [
                f"seed {self.seed} ({self.kind}), step {self.steps}: {check}: {what}",
                f"again: RECALL_SIM_SEED={self.seed} python -m pytest tests/simulation -k seed",
                *self.trace[-lines:],
            ]
        )


def simulate(seed: int, odds: Odds | None = None) -> Outcome:
    """Run one seed. The same seed and odds have the same trace."""
    with _quiet():
        return run_virtual(_Day(seed, odds or Odds()).run())


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("recall_livekit")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Day:
    """The course of one simulation."""

    def __init__(self, seed: int, odds: Odds) -> None:
        self._seed = seed
        self._odds = odds

    async def run(self) -> Outcome:
        self._world = world = World(self._seed, self._odds)
        await self._unless_over(self._bad_day())
        await self._unless_over(self._evening())
        for worker in list(world.workers):
            worker.process.die()
        seconds = asyncio.get_running_loop().time()
        await asyncio.sleep(5.0)
        return Outcome(
            self._seed,
            world.kind,
            world.fault,
            world.trace,
            world.judge.steps,
            world.judge.takeovers,
            world.crashes,
            len(world.judge.ledger.entries),
            seconds,
        )

    async def _unless_over(self, part: Coroutine[Any, Any, None]) -> None:
        if self._world.fault is not None:
            part.close()
            return
        task, over = asyncio.ensure_future(part), asyncio.ensure_future(self._world.over.wait())
        await asyncio.wait({task, over}, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    # --- the bad day ----------------------------------------------------------------------------

    async def _bad_day(self) -> None:
        slots = self._odds.workers or self._world.random.choice((2, 2, 3, 4))
        work = [self._comes_and_goes() for _ in range(slots)]
        drainers = [self._drainers()] if self._world.machines else []
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(part)
                for part in (
                    *work,
                    self._weather(),
                    self._erasers(),
                    self._hasty(),
                    self._watchers(),
                    *drainers,
                )
            ]
            await self._enough()
            for task in running:
                task.cancel()

    async def _enough(self) -> None:
        loop, judge = asyncio.get_running_loop(), self._world.judge
        while judge.takeovers < self._odds.takeovers and loop.time() < self._odds.longest:  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _comes_and_goes(self) -> None:
        world, odds = self._world, self._odds
        while True:
            await asyncio.sleep(world.random.expovariate(1 / odds.idle))
            if world.random.random() < odds.new_room:
                world.move()
            worker = world.new_worker()
            if worker.chance(odds.fuse):
                worker.process.fuse = world.random.randint(1, odds.longest_fuse)
            await worker.live()

    async def _weather(self) -> None:
        world, odds = self._world, self._odds
        while True:
            bad = world.random.random() < odds.bad_weather
            world.weather = odds.faults() if bad else CALM
            for machine in world.machines:
                machine.full = world.spools.random() < odds.full_disk
            for worker in world.workers:
                self._cuts_off(worker)
                worker.weather(world.weather)
                if worker.chance(odds.frozen_store):
                    self._freezes(worker)
                if worker.chance(odds.jump):
                    worker.process.jump(world.random.choice((-3600.0, 3600.0)))
            await asyncio.sleep(world.random.uniform(0.5, 2.0))

    def _cuts_off(self, worker: Worker) -> None:
        spools = self._world.spools
        if worker.spool is not None and spools.random() < self._odds.outage:
            worker.cut_off()

    def _freezes(self, worker: Worker) -> None:
        worker.store.freeze()
        worker.process.spawn(self._thaws(worker, self._world.random.uniform(0.1, 1.5)))

    async def _thaws(self, worker: Worker, seconds: float) -> None:
        await asyncio.sleep(seconds)
        worker.store.thaw()
        worker.process.stopped_at = worker.process.clock.monotonic()

    async def _erasers(self) -> None:
        world, odds = self._world, self._odds
        while True:
            await asyncio.sleep(1.0)
            if world.random.random() < odds.erase:
                eraser = world.new_worker()
                if eraser.chance(odds.erase_fuse):
                    eraser.process.fuse = world.random.randint(1, odds.longest_fuse)
                eraser.process.spawn(erase(world, eraser))
                world.move()

    async def _hasty(self) -> None:
        world = self._world
        while True:
            await asyncio.sleep(1.0)
            if world.random.random() < self._odds.hasty:
                worker = world.new_worker()
                worker.process.spawn(hurry(world, worker))

    async def _watchers(self) -> None:
        """Now and then two watchers see the same and do the same."""
        world, odds = self._world, self._odds
        while True:
            await asyncio.sleep(1.0)
            if world.watchers.random() < odds.breaks:
                for _ in range(world.watchers.choice((1, 1, 2))):
                    watcher = world.new_worker()
                    if world.watchers.random() < odds.break_fuse:
                        watcher.process.fuse = 1
                    after = world.watchers.choice((0.0, world.watchers.expovariate(1 / 0.4)))
                    watcher.process.spawn(break_it(world, watcher, after))

    async def _drainers(self) -> None:
        world = self._world
        while True:
            await asyncio.sleep(1.0)
            if world.spools.random() < self._odds.drainer:
                for _ in range(world.spools.choice((1, 2))):
                    worker = world.new_worker()
                    worker.process.spawn(drain(worker))

    # --- the evening ----------------------------------------------------------------------------

    async def _evening(self) -> None:
        """The faults stop: whoever is left has the call, and so has the next who comes."""
        world = self._world
        world.weather = CALM
        for worker in world.workers:
            worker.process.go_on()
            worker.process.fuse = None
            worker.store.thaw()
            self._clear_sky(worker)
        for machine in world.machines:
            machine.full = False
        if (survivor := self._survivor()) is not None:
            await self._has_it(survivor)
        await self._has_it(self._next())
        if world.machines and world.spools.random() < 0.5:
            await self._is_drained()
        await world.judge_erasure()
        await self._is_drained()
        await world.judge.final()

    def _survivor(self) -> Worker | None:
        """Return one of those who are left; all others die."""
        world = self._world
        left = [worker for worker in world.workers if worker.wants_it()]
        survivor = world.random.choice(left) if left else None
        self._kill_all_but(survivor)
        return survivor

    def _next(self) -> Worker:
        self._kill_all_but(None)
        world = self._world
        if self._is_erased(world.room.sid):
            world.move()
        worker = world.new_worker()
        self._clear_sky(worker)
        worker.open("standby", world.room)
        return worker

    def _clear_sky(self, worker: Worker) -> None:
        worker.cut_off_until = 0.0
        worker.weather(CALM)

    def _is_erased(self, sid: str | None) -> bool:
        ledger = self._world.judge.ledger
        return any(
            run.get("room_sid") == sid and number <= ledger.erased_run
            for number, run in ledger.runs.items()
        )

    def _kill_all_but(self, survivor: Worker | None) -> None:
        for worker in list(self._world.workers):
            if worker is not survivor:
                worker.process.die()
                self._world.left(worker)

    async def _has_it(self, worker: Worker) -> None:
        call, world = worker.call, self._world
        assert call is not None
        world.note(f"{call.writer} is alone")
        if not await call.holding(HOLDS_WITHIN) and not self._not_his_any_more(worker, call):
            world.fail("liveness", f"{call.writer} is {call.state.value}, alone, and does not hold")
        await call.flush(DRAINS_WITHIN)
        if call.lag:
            world.fail("drain", f"{call.writer} keeps {call.lag} records, and nothing hinders it")

    async def _is_drained(self) -> None:
        """What the dead have left is stored, or where it may not be, set aside."""
        self._kill_all_but(None)
        for machine in self._world.machines:
            worker = self._world.new_worker(machine)
            self._clear_sky(worker)
            assert worker.spool is not None
            for _ in range(DRAIN_TRIES):
                outcomes = [one async for one in worker.spool.drain_all()]
                await asyncio.sleep(0.5)
            for one in outcomes:
                self._world.fail("drain", f"{one.name} {one.outcome}: {one.why}")
            await worker.exit()

    def _not_his_any_more(self, worker: Worker, call: Call) -> bool:
        """Whether a worker that will not hold the call is right."""
        if call.lost != "over":
            return call.lost == "erased"
        ledger, fairness = self._world.judge.ledger, self._world.judge.fairness
        if ledger.runs[ledger.account.run].get("room_sid") != worker.room.sid:
            return True
        # the run that it waited for may have ended, and its room have opened another since
        in_its_room = (
            n for n, run in ledger.runs.items() if run.get("room_sid") == worker.room.sid
        )
        return any(fairness.closed(number) for number in in_its_room)
