"""Calls that another worker recorded, turn by turn, before it was killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recall_livekit import Call, Recall

from .children import child, tell

WORDS = """
yes no the my your number order flight ticket billing address street seven four nine Tuesday
morning please thanks would could change refund because account payment card confirm problem
yesterday email understand moment actually connection appointment available
"""
LENGTHS = (10, 100, 1_000, 10_000)
"""Turns of the calls whose length should not matter."""
TURNS_A_SECOND = 200
"""A slow machine's: how long a recording may take follows from it."""
_copies = itertools.count()


def sentences(seed: int = 0) -> Iterator[str]:
    """What people say on the phone: 40 to 120 characters each."""
    source, words = random.Random(seed), WORDS.split()
    while True:
        length, text = source.randint(40, 110), "Well,"
        while len(text) < length:
            text = f"{text} {source.choice(words)}"
        yield f"{text}."


def url_of(directory: Path) -> str:
    return f"sqlite:///{directory}"


async def record_calls(directory: Path, turns: int, calls: int = 1) -> None:
    """Records `call-0`, `call-1` ... in `directory`, by a process that is killed holding them."""
    async with child(directory.parent, recording, directory, turns, calls) as process:
        await process.told("recorded", within=30 + turns * calls / TURNS_A_SECOND)
        process.send(signal.SIGKILL)


@contextmanager
def copied(directory: Path) -> Iterator[Path]:
    """A copy of the records, so that each look at them is the first."""
    copy = directory.with_name(f"{directory.name}-copy-{next(_copies)}")
    shutil.copytree(directory, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def recording(directory: str, turns: str, calls: str) -> None:
    """In the child: record, say so, and wait to be killed."""
    asyncio.run(_record(Path(directory), int(turns), int(calls)))


async def _record(directory: Path, turns: int, calls: int) -> None:
    recall = Recall.open(url_of(directory))
    for number in range(calls):
        call = recall.resume(f"call-{number}")
        call.start()
        await call.holding(seconds=10)
        await _talk(call, turns)
    tell("recorded", turns * calls)
    await asyncio.sleep(60)
    os._exit(1)


async def _talk(call: Call, turns: int) -> None:
    for number, text in zip(range(turns), sentences(), strict=False):
        message_id = f"item_{number:012x}"
        if number % 2:
            call.record_turn("user", text, message_id=message_id)
        else:
            call.record_turn("assistant", text, message_id=message_id, agent="support")
        if not await call.flush(seconds=10):
            raise TimeoutError("a turn was not durable after 10 s")
