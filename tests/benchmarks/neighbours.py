"""`on_enter` of a call beside the calls of others, against the same call alone in its directory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median

from recall_livekit import Recall
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.stores.sqlite import SqliteStore

from .figures import MS
from .on_enter import WARM_UP, entered, plain
from .recorded import record_calls, sentences
from .registry import Row, Scale, benchmark

TURNS = 100
TURNS_OF_SHORT = 10
MOST_ENTRIES = 256
TOGETHER = 16


@benchmark("on_enter_beside_20000")
def beside_turns(scale: Scale) -> Iterable[Row]:
    """Beside 20,000 turns of others, in calls as long as this one."""
    return _beside("on_enter_beside_20000", scale.of(20_000 // TURNS, 1), TURNS, scale)


@benchmark("on_enter_beside_20000_calls")
def beside_calls(scale: Scale) -> Iterable[Row]:
    """Beside 20,000 short calls of others, each a file of its own: some 320 MB of them."""
    return _beside("on_enter_beside_20000_calls", scale.of(20_000, 20), TURNS_OF_SHORT, scale)


def _beside(name: str, calls: int, turns: int, scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        triples = asyncio.run(_triples(Path(directory), calls, turns, scale.of(60, 2)))
    many = MS * median(many - without for many, _, without in triples)
    alone = MS * median(alone - without for _, alone, without in triples)
    return [Row(name, many, "ms", alone, "<= 1.5 x floor")]


async def _triples(
    directory: Path, calls: int, turns: int, rounds: int
) -> list[tuple[float, float, float]]:
    call, many, alone = directory / "call", directory / "many", directory / "alone"
    await record_calls(call, TURNS)
    await add_calls(many, calls, turns)
    triples = [
        (await _entered_in(many, call), await _entered_in(alone, call), await plain())
        for _ in range(WARM_UP + rounds)
    ]
    return triples[WARM_UP:]


async def _entered_in(directory: Path, call: Path) -> float:
    """The call's files are put there as its worker left them: it is the same call everywhere."""
    shutil.copytree(call, directory, dirs_exist_ok=True)
    return await entered(directory)


async def add_calls(directory: Path, calls: int, turns: int) -> None:
    """Adds calls that have ended: files of the store's own making, with entries of Recall's."""
    entries = await _entries_of_call(turns)
    store = SqliteStore(directory)
    try:
        names = (f"other-{number}" for number in range(calls))
        while some := list(islice(names, TOGETHER)):
            await asyncio.gather(*(_add_call(store, name, entries) for name in some))
    finally:
        await store.aclose()


async def _add_call(store: SqliteStore, call: str, entries: Sequence[bytes]) -> None:
    appends = (store.append(call, position, entry) for position, entry in enumerate(entries))
    await asyncio.gather(*appends)


async def _entries_of_call(turns: int) -> Sequence[bytes]:
    store = MemoryStore()
    async with Recall(store) as recall:
        async with recall.resume("other") as call:
            for text in islice(sentences(), turns):
                call.record_turn("user", text)
                await call.flush()
        return await store.read("other", 0, MOST_ENTRIES)
