"""Workers that keep outputs beside the chain, and what must be true of each of them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from recall_livekit.call import Call
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.outputs import encoded, write_output
from recall_livekit.errors import (
    Closed,
    Erased,
    OutboxFull,
    OutputMissing,
    ReadOnly,
    StoreUnavailable,
)

from .ledger import Fail, Raw

if TYPE_CHECKING:
    from .worker import Worker
    from .world import World

__all__ = ["Outputs", "keep_outputs", "put_blindly"]


async def keep_outputs(world: World, worker: Worker, call: Call, random: Random) -> None:
    """Keep one output after the other, and look at some again."""
    kept: dict[str, str] = {}
    while worker.process.alive:
        await asyncio.sleep(random.expovariate(2.0))
        await worker.process.stand()
        text = world.marker()
        try:
            kept[(await call.keep_output("report", text)).ref] = text
            await _look(world, call, random.choice(sorted(kept)), kept)
        except (OutboxFull, ReadOnly, StoreUnavailable):
            continue
        except (Closed, Erased):
            return


async def _look(world: World, call: Call, ref: str, kept: dict[str, str]) -> None:
    """What was kept is there, unless it was erased since."""
    erases = len(world.judge.ledger.erases)
    try:
        found = await call.fetch_output(ref)
    except OutputMissing:
        anchor = int(ref.partition("/")[0])
        if not any(anchor < position for position in world.judge.ledger.erases):
            world.fail("outputs", f"{ref} was kept, and is missing though nothing was erased")
    else:
        if found != kept[ref] and erases == len(world.judge.ledger.erases):
            world.fail("outputs", f"{ref} holds {found}, not {kept[ref]}")


async def put_blindly(self: Engine, call: str, writer: str, counter: int, text: str) -> str | None:
    """`Engine.put_output` of a process that has not heard of any erasure: a cache decides nothing,
    the names alone do (rules 1 and 15)."""
    chain = self._chain(call)
    known = chain.fold.writers.get(writer) or (await chain.refresh()).writers.get(writer)
    if known is None:
        return None
    kept = await write_output(self.store, call, known.anchor, counter, encoded(text))
    if kept is None:
        raise Erased("its names are sealed")
    return f"{known.anchor}/{kept}"


class Outputs:
    """Checks the cells on the stored bytes alone: created once, without a gap, before the record
    that names them."""

    def __init__(self, fail: Fail, cells: dict[str, bytes], sealed: tuple[bytes, ...]) -> None:
        self._fail = fail
        self._cells = cells
        self._sealed = sealed

    def cell(self, name: str, value: bytes) -> None:
        """Check a cell before it is written."""
        kind, _, ref = name.partition("/")
        if kind != "output" or value in self._sealed:
            return
        anchor, _, counter = ref.partition("/")
        if name in self._cells:
            self._fail("outputs", f"{name} was written over")
        if int(counter) and f"output/{anchor}/{int(counter) - 1}" not in self._cells:
            self._fail("outputs", f"{name} is there, and the one before it is not")

    def entry(self, raw: Raw) -> None:
        """Check that what a record names is there."""
        for record in raw.get("records", ()):
            if record["kind"] == "output" and f"output/{record['ref']}" not in self._cells:
                self._fail("outputs", f"a record names {record['ref']}, which is not there")
