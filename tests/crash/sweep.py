"""Kills a worker at every boundary of its story, and looks at what is left.

``python -m tests.crash sweep STORY HEIR LEVEL STRIDE DIRECTORY``: STORY is ``call``, ``erase``,
or ``finish`` (another worker finishes an erasure); HEIR comes after an erasure (``again``,
``newcomer``, ``same_room``); LEVEL is ``requests`` or ``disk``; every STRIDE-th boundary is tried.
"""

from __future__ import annotations

import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from recall_livekit import Recall
from recall_livekit.engine.chain import Chain
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.erasure import is_finished
from recall_livekit.errors import RecallError
from recall_livekit.stores.sqlite import SqliteStore

from ..files import contains
from .dying import NEVER, Death, DyingStore, watch_disk
from .nursery import Body, Child, Tell, raise_child
from .stories import (
    CALL,
    CLOCK,
    ORDER,
    ROOM,
    SECRET,
    SETTINGS,
    Hand,
    erase,
    finish,
    much_said,
    whole_call,
)

FINISHED_WITHIN = 3.0
STORIES = {"call": whole_call, "erase": erase, "finish": finish}


async def play(story: str, directory: Path, level: str, at: int, tell: Tell) -> None:
    """Live the story, and die at boundary `at`."""
    death = Death(at)
    if level == "disk":
        watch_disk(death)
    store = DyingStore(directory, death if level == "requests" else Death())
    await STORIES[story](store, tell)
    await store.aclose()
    tell(passed=death.passed)


def done(body: Body) -> Child:
    """Have a child do something to its end, and return it."""
    with raise_child(body) as child:
        assert child.end() == 0, "it failed, see above"
    return child


class Sweep:
    """One story, killed again and again; `directory` has a copy of its records for each."""

    def __init__(self, story: str, heir: str, level: str, directory: Path) -> None:
        self.story, self.heir, self.level = story, heir, level
        self._prepared = directory / "prepared"
        self._tried = directory / "tried"
        self.kills = self.acked = 0
        self.waits: list[float] = []
        self.snapshots = 0
        self._prepared.mkdir()
        if story != "call":
            done(partial(self._prepare))
        if story == "finish":
            with raise_child(partial(play, "erase", self._prepared, "requests", 2)) as eraser:
                assert eraser.end() == -9, "it was to die after its first request"

    async def _prepare(self, tell: Tell) -> None:
        store = SqliteStore(self._prepared)
        await much_said(store, tell)
        await store.aclose()

    def boundaries(self) -> int:
        """Return how many there are: the story is lived once to its end."""
        return int(self._lived(NEVER).values("passed")[0])

    def _lived(self, at: int) -> Child:
        shutil.rmtree(self._tried, ignore_errors=True)
        shutil.copytree(self._prepared, self._tried)
        with raise_child(partial(play, self.story, self._tried, self.level, at)) as child:
            child.end()
        return child

    def kill_at(self, at: int) -> None:
        child = self._lived(at)
        assert child.status in (0, -9), f"boundary {at}: exit {child.status}"
        self.kills += child.status == -9
        try:
            self._look(child)
        except AssertionError as error:
            raise AssertionError(f"{self.story}, boundary {at}: {error}; {child.told}") from error

    def _look(self, child: Child) -> None:
        if self.story == "call":
            self._look_at_call(child)
        else:
            self._look_at_erasure(child)

    def _look_at_call(self, child: Child) -> None:
        acked = child.values("acked")
        seen = done(partial(inherit, self._tried, child.told)).told[-1]
        found = seen["found"]
        assert_order(found, acked)
        assert seen["after"] == [*found, "heir"], seen
        assert seen["again"] == 0, "a record that was sent again was written again"
        assert seen["snapshot"] != "wrong", "snapshot and tail differ from the whole"
        self.acked += len(acked)
        self.snapshots += seen["snapshot"] == "used"
        self.waits.append(seen["waited"])

    def _look_at_erasure(self, child: Child) -> None:
        if child.values("erased"):
            assert not contains(self._tried, SECRET.encode()), "erased, it said"
        seen = done(partial(succeed, self._tried, self.heir)).told[-1]
        left = contains(self._tried, SECRET.encode())
        if seen["begun"]:
            assert not left, f"{self.heir} met an unfinished erasure and left content"
            assert seen["late"] == "refused"
        else:
            assert left
            assert seen["turns"] == 261, "nothing was erased, and something is gone"


def assert_order(found: list[str], acked: list[str]) -> None:
    assert len(found) == len(set(found)), f"twice: {found}"
    assert found == [text for text in ORDER if text in found], f"out of order: {found}"
    assert set(acked) <= set(found), f"lost: {set(acked) - set(found)}"
    assert len(found) <= len(acked) + 1, f"more than was under way: {found}"


async def inherit(directory: Path, told: list[dict[str, Any]], tell: Tell) -> None:
    """Read the call, take it, go on, and send again what was acknowledged."""
    store = SqliteStore(directory)
    heir = Hand(store, lambda **_: None, "heir")
    found = [turn.content for turn in await heir.engine.turns(CALL)]
    snapshot = await snapshot_of(store)
    began = time.monotonic()
    await heir.take()
    waited = time.monotonic() - began
    await heir.say("heir")
    again = await sent_again(heir, told)
    after = [turn.content for turn in await heir.engine.turns(CALL)]
    await store.aclose()
    tell(found=found, after=after, again=again, waited=waited, snapshot=snapshot)


async def snapshot_of(store: SqliteStore) -> str:
    """Return whether there is a snapshot, and that with its tail it equals the whole fold."""
    short, long = (Chain(store, CALL, 1 << 60, snapshots=used) for used in (True, False))
    if (await short.refresh()).value() != (await long.refresh()).value():
        return "wrong"
    return "used" if short.snapshot_position else "none"


async def sent_again(heir: Hand, told: list[dict[str, Any]]) -> int:
    """Send every acknowledged record again, as late; return how many entries that added."""
    before = (await heir.engine.read(CALL)).position
    for line in told:
        if "acked" in line:
            dead = Hand(heir.engine.store, lambda **_: None, line["writer"])  # type: ignore[arg-type]
            dead.last = line["number"] - 1
            await dead.say_provisional(line["acked"], epoch=1)
    return (await heir.engine.read(CALL)).position - before


async def succeed(directory: Path, heir: str, tell: Tell) -> None:
    """Meet a call whose erasure may have begun, as `heir` does."""
    store = SqliteStore(directory)
    engine = Engine(store, CLOCK, SETTINGS)
    turns = len(await engine.turns(CALL))
    begun = bool((await Chain(store, CALL, 1 << 60).refresh()).erases)
    late = await meet(heir, store, engine) if begun else "not tried"
    await store.aclose()
    tell(begun=begun, turns=turns, late=late)


async def meet(heir: str, store: SqliteStore, engine: Engine) -> str:
    if heir == "again":
        await engine.erase(CALL)
    elif heir == "newcomer":
        await live(store, "RM_other")
    elif heir == "same_room":
        await live(store, ROOM)
    return await late_writer(store)


async def live(store: SqliteStore, room: str) -> None:
    """Be a live call of this room until the erasure is finished, or it clearly never will be."""
    position = (await Chain(store, CALL, 1 << 60).refresh()).erases[-1]
    call = Recall(store).resume(CALL, room_sid=room)
    call.start()
    with anyio.move_on_after(FINISHED_WITHIN):
        while not await is_finished(store, CALL, position):  # noqa: ASYNC110  # by whomever
            await anyio.sleep(0.005)
    await call.aclose()


async def late_writer(store: SqliteStore) -> str:
    """The erased call's own writer comes late, with its next record and words under way."""
    late = Hand(store, lambda **_: None, "second")
    late.last = 1
    try:
        await late.say_provisional(f"late: {SECRET}", epoch=2)
    except RecallError:
        await late.engine.read(CALL)
        return "partial written" if await late.partial(SECRET) else "refused"
    return "record written"


def main(story: str, heir: str, level: str, stride: str, directory: str) -> None:
    sweep = Sweep(story, heir, level, Path(directory))
    boundaries = sweep.boundaries()
    for at in range(1, boundaries + 1, int(stride)):
        sweep.kill_at(at)
    print(
        json.dumps(
            {
                "boundaries": boundaries,
                "kills": sweep.kills,
                "acked": sweep.acked,
                "worst_ms": round(1000 * max(sweep.waits, default=0.0)),
                "snapshots": sweep.snapshots,
            }
        )
    )
