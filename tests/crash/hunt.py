"""Kills the workers of one call at random: the holder, its standby, or both.

``python -m tests.crash hunt DIRECTORY CALL SEED KILLS RATE``
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from recall_livekit.engine.engine import Engine
from recall_livekit.stores.sqlite import SqliteStore

from .nursery import Child, Tell, raise_child
from .stories import CLOCK, SETTINGS
from .sweep import done
from .writer import write


class Hunt:
    """What was acknowledged by all that were killed, in the order in which they had the call."""

    def __init__(self, directory: str, call: str, seed: int, rate: float) -> None:
        self.acked: list[str] = []
        self.waits: list[float] = []
        self.kills = 0
        self._alive = ExitStack()
        self._work = partial(write, directory, call, rate)
        self._chance = random.Random(seed)
        self._longest = 0.15 + 2 / rate

    def run(self, kills: int) -> None:
        with self._alive:
            holder = self._holder()
            while self.kills < kills:
                holder = self._strike(holder)
            self._kill(holder)

    def _born(self) -> Child:
        return self._alive.enter_context(raise_child(self._work))

    def _holder(self) -> Child:
        child = self._born()
        child.wait_for("held")
        return child

    def _strike(self, holder: Child) -> Child:
        """Kill somebody at some moment; return who has the call then."""
        standby = self._born()
        which = self._chance.random()
        if which < 0.1:
            return self._both(holder, standby)
        standby.wait_for("standby")
        holder.listen(self._chance.uniform(0.0, self._longest))
        if which < 0.2:
            self._kill(standby)
            return holder
        return self._taken_over(holder, standby)

    def _both(self, holder: Child, standby: Child) -> Child:
        """The second one dies too, wherever it is: starting, waiting, or taking over."""
        standby.listen(self._chance.uniform(0.0, 0.1))
        self._kill(holder)
        standby.listen(self._chance.uniform(0.0, 0.05))
        self._kill(standby)
        return self._holder()

    def _taken_over(self, holder: Child, standby: Child) -> Child:
        killed = time.monotonic()
        self._kill(holder)
        standby.wait_for("held")
        self.waits.append(time.monotonic() - killed)
        return standby

    def _kill(self, child: Child) -> None:
        child.kill()
        self.kills += 1
        self.acked += child.values("acked")


async def look(directory: str, call: str, tell: Tell) -> None:
    store = SqliteStore(Path(directory))
    for turn in await Engine(store, CLOCK, SETTINGS).turns(call):
        tell(found=turn.content)
    await store.aclose()


def assert_whole(found: list[str], acked: list[str], kills: int) -> None:
    assert len(found) == len(set(found)), "a record is there twice"
    known = set(acked)
    assert len(known - set(found)) == 0, f"lost: {sorted(known - set(found))[:10]}"
    assert [text for text in found if text in known] == acked, "out of order"
    assert len(found) <= len(acked) + kills, "more than was under way"


def main(directory: str, call: str, seed: str, kills: str, rate: str) -> None:
    hunt = Hunt(directory, call, int(seed), float(rate))
    hunt.run(int(kills))
    found = done(partial(look, directory, call)).values("found")
    assert_whole(found, hunt.acked, hunt.kills)
    worst = round(1000 * max(hunt.waits))
    print(json.dumps({"kills": hunt.kills, "acked": len(hunt.acked), "worst_ms": worst}))
