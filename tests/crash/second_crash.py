"""Workers that die before their lease: what they had written provisionally is kept.

``python -m tests.crash second_crash DIRECTORY SEED ROUNDS``
"""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

from recall_livekit import Recall
from recall_livekit.engine.entries import LeaseEntry, RecordsEntry, load_entry
from recall_livekit.errors import StoreUnavailable
from recall_livekit.stores.sqlite import SqliteStore

from .hunt import assert_whole, look
from .nursery import Body, Tell, raise_child
from .stories import CALL
from .sweep import done
from .writer import write

RATE = 100.0


class Leaseless(SqliteStore):
    """Every request for the lease is lost, until its worker is killed."""

    async def append(self, call: str, position: int, entry: bytes) -> None:
        if isinstance(load_entry(entry), LeaseEntry):
            raise StoreUnavailable("the request was lost")
        await super().append(call, position, entry)


async def write_early(directory: str, name: str, tell: Tell) -> None:
    """Record as a voice agent does: at once, and without the lease for as long as it lives."""
    call = Recall(Leaseless(directory)).resume(CALL)
    call.start()
    for number in range(1, 1000):
        text = f"{name}.{number}"
        call.record_turn("user", text)
        assert await call.flush(20)
        assert call.state.value == "acquiring"
        tell(acked=text)


class Rounds:
    """Each round: one or two workers die before their lease, then one that had it."""

    def __init__(self, directory: str, seed: int) -> None:
        self.acked: list[str] = []
        self.early: list[str] = []
        self.kills = 0
        self._directory = directory
        self._chance = random.Random(seed)

    def go(self, number: int) -> None:
        for worker in range(self._chance.choice((1, 2))):
            self.early += self._killed(
                partial(write_early, self._directory, f"early {number}.{worker}")
            )
        self._killed(partial(write, self._directory, CALL, RATE))

    def _killed(self, body: Body) -> list[str]:
        with raise_child(body) as child:
            child.wait_for("acked")
            child.listen(self._chance.uniform(0.0, 0.1))
            child.kill()
        acked: list[str] = child.values("acked")
        self.kills += 1
        self.acked += acked
        return acked


async def look_at_entries(directory: str, tell: Tell) -> None:
    """Tell every turn that was written without a lease."""
    store = SqliteStore(Path(directory))
    position = 0
    while page := await store.read(CALL, position, 256):
        position += len(page)
        for entry in map(load_entry, page):
            if isinstance(entry, RecordsEntry) and entry.provisional_run is not None:
                for record in entry.records:
                    tell(provisional=getattr(record, "content", None))
    await store.aclose()


def main(directory: str, seed: str, rounds: str) -> None:
    all_of_it = Rounds(directory, int(seed))
    for number in range(int(rounds)):
        all_of_it.go(number)
    found = done(partial(look, directory, CALL)).values("found")
    assert_whole(found, all_of_it.acked, all_of_it.kills)
    provisional = done(partial(look_at_entries, directory)).values("provisional")
    assert set(all_of_it.early) <= set(provisional), "they were to be written without a lease"
    early = len(all_of_it.early)
    summary = {"kills": all_of_it.kills, "acked": len(all_of_it.acked), "provisional": early}
    print(json.dumps(summary))
