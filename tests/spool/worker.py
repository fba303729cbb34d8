"""Processes that share a spool, each with a way to die: see `test_processes`.

`spool DIR` has a call whose store goes away, and records until it is killed; `fork DIR` does it
too, and has a child that outlives it; `drain DIR` drains all there is; `full DIR` has a disk that
takes no more for a while.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from .conftest import CALL, Process


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def fork(directory: Path) -> None:
    spooling = asyncio.create_task(spool(directory))
    await asyncio.sleep(1.0)
    if (child := os.fork()) == 0:
        outlive()
    tell(child=child)
    await spooling


def outlive() -> None:
    for pipe in (0, 1, 2):
        os.close(pipe)
    time.sleep(30)
    os._exit(0)


async def spool(directory: Path) -> None:
    process = Process(directory)
    call = process.call(room_sid="RM_1", caller="anna")
    call.start()
    assert await call.holding(10)
    call.record_turn("user", "stored")
    assert await call.flush(10)
    process.store.freeze()
    for number in range(1_000_000):
        call.record_turn("user", f"spooled {number}")
        await asyncio.sleep(0.005)
        tell(spooled=call.spooled)


async def drain(directory: Path) -> None:
    process = Process(directory)
    tell(ready=True)
    sys.stdin.readline()
    outcomes = [drained async for drained in process.spool.drain_all()]
    tell(outcomes=[(one.outcome, one.records) for one in outcomes])
    await process.aclose()


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


async def full(directory: Path) -> None:
    """The disk is full for the spool alone: the store does not answer anyway."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    process = Process(directory)
    call = process.call()
    call.start()
    assert await call.holding(10)
    process.store.freeze()
    limit(30_000)
    for number in range(40):
        call.record_turn("user", f"{number} " + "x" * 1000)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert (call.lag, call.refused) == (40, 0)
    assert 5 < call.spooled < 35, call.spooled
    limit(resource.RLIM_INFINITY)
    async with asyncio.timeout(10):
        while call.spooled < 40:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    process.store.thaw()
    assert await call.flush(10)
    said = [text.split()[0] for text in await process.said(CALL)]
    tell(said=said)
    await process.aclose()


if __name__ == "__main__":
    what = {"spool": spool, "fork": fork, "drain": drain, "full": full}[sys.argv[1]]
    asyncio.run(what(Path(sys.argv[2])))
