"""Outputs beside the chain, as rules 14 and 15 want them written; the product has none yet."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from recall_livekit.call import Call
from recall_livekit.errors import Conflict, StoreError

from .audit import CALL

if TYPE_CHECKING:
    from .worker import Worker
    from .world import World

__all__ = ["keep_outputs", "output_name"]


def output_name(anchor: int, counter: int, random: Random) -> str:
    """Return the name of a writer's next output: its first entry, and a counter without gaps."""
    return f"output/{anchor}/{counter}"


async def keep_outputs(world: World, worker: Worker, call: Call, random: Random) -> None:
    """Create one output after the other, each until it is there or its name is taken."""
    counter = 0
    while worker.process.alive:
        await asyncio.sleep(random.expovariate(2.0))
        await worker.process.stand()
        known = worker.engine._chain(CALL).fold.writers.get(call.writer)
        if known is None:
            continue
        value = f'{{"output":"{world.marker()}"}}'.encode()
        if not await _create(worker, output_name(known.anchor, counter, random), value):
            return
        counter += 1


async def _create(worker: Worker, name: str, value: bytes) -> bool:
    while True:
        try:
            await worker.store.put_cell(CALL, name, value, None)
        except Conflict:
            return await _is_mine(worker, name, value)
        except StoreError:
            await worker.process.clock.sleep(0.1)
        else:
            return True


async def _is_mine(worker: Worker, name: str, value: bytes) -> bool:
    """Whether an answer was lost, rather than the name sealed."""
    while True:
        try:
            cell = await worker.store.get_cell(CALL, name)
        except StoreError:
            await worker.process.clock.sleep(0.1)
        else:
            return cell is not None and cell.value == value
