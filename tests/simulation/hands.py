"""Others who touch the call: an operator who erases it or drains a spool, a watcher that breaks
leases, and a writer in too much of a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recall_livekit.breaking import break_lease, breaker_of
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.errors import Erased, Gap, RecallError, StoreError, UnknownRun
from recall_livekit.models import Record, Turn

from .audit import CALL
from .fairness import Who

if TYPE_CHECKING:
    from .worker import Worker
    from .world import World

__all__ = ["break_it", "drain", "erase", "hurry"]


async def erase(world: World, worker: Worker) -> None:
    """Erase the call, trying as often as an operator would; it may be killed halfway."""
    world.note(f"{worker.process.name} erases")
    there = len(world.judge.ledger.entries)
    for _ in range(4):
        try:
            await worker.engine.erase(CALL)
        except StoreError:
            await worker.process.clock.sleep(0.2)
        else:
            world.erased(there)
            break
    await worker.exit()


async def drain(worker: Worker) -> None:
    """Drain what dead workers of this machine have left, as an operator's command does."""
    assert worker.spool is not None
    async for _ in worker.spool.drain_all():
        pass
    await worker.exit()


async def break_it(world: World, worker: Worker, after: float) -> None:
    """See who has the call, ask its agent for a while, and break the lease that was seen; it may be
    killed halfway, and others may do the same."""
    clock = worker.process.clock
    try:
        reading = await worker.engine.read(CALL)
        seen = reading.epoch
        await clock.sleep(after)
        world.judge.fairness.who[breaker_of(seen)] = Who(worker.process, breaks=seen)
        world.note(f"{worker.process.name} breaks epoch {seen}")
        for _ in range(3):
            try:
                if await break_lease(worker.engine, CALL, seen, reading.position):
                    world.judge.fairness.broken(seen)
                break
            except StoreError:
                await clock.sleep(0.1)  # it may be done: to repeat it is safe
    except StoreError:
        pass  # it saw nothing
    await worker.exit()


async def hurry(world: World, worker: Worker) -> None:
    """Write provisional turns, one before the one that comes before it."""
    clock, room = worker.process.clock, world.room
    writer = clock.new_id()
    world.judge.fairness.who[writer] = Who(worker.process)
    origin = Origin(room_sid=room.sid, caller=room.caller)
    try:
        reading = await worker.engine.read(CALL, origin)
        world.judge.first_read[writer] = reading.position
        request = Acquire(
            writer=writer, attempt="-", ttl=2.0, origin=origin, read_position=reading.position
        )
        run = reading.run or await worker.engine.open_run(CALL, request)
        await _both_at_once(world, worker, writer, run, reading.epoch)
    except StoreError:
        pass  # nobody waits for what it says
    except Erased:
        pass
    await worker.exit()


async def _both_at_once(world: World, worker: Worker, writer: str, run: int, epoch: int) -> None:
    expected = 1
    for _ in range(6):
        at = worker.process.clock.now()
        units = [[Turn(at=at, role="user", content=world.marker())] for _ in range(2)]
        sent = [
            _send(world, worker, writer, expected + ahead, units[ahead], run, epoch)
            for ahead in (1, 0)
        ]
        answers = await asyncio.gather(*sent)
        if any(isinstance(answer, Erased | UnknownRun | StoreError) for answer in answers):
            return  # what it does not know it does not send again under another number
        expected += sum(answer is None for answer in answers)


async def _send(
    world: World,
    worker: Worker,
    writer: str,
    first: int,
    records: Sequence[Record],
    run: int,
    epoch: int,
) -> RecallError | None:
    try:
        ack = await worker.engine.append_provisional(CALL, writer, first, records, run, epoch)
    except (Gap, Erased, UnknownRun, StoreError) as error:
        return error
    world.judge.acknowledged(writer, ack.last)
    return None
