"""Power is lost: of a killed worker's log only a part is on the disk, or what follows is junk.

``python -m tests.crash torn DIRECTORY SEED CUTS SIZE``: turns of SIZE characters until the worker
is killed in the middle of a write; then CUTS copies of the directory, each with the log torn at
another place, are opened. All processes are dead while files are read or copied here.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

from recall_livekit.engine.engine import Engine
from recall_livekit.errors import StoreUnusable
from recall_livekit.settings import Settings
from recall_livekit.stores.sqlite import SqliteStore

from .dying import Death, watch_disk
from .nursery import Child, Tell, raise_child
from .stories import CALL, CLOCK, Hand
from .sweep import done

WAL_HEADER, FRAME_HEADER = 32, 24
CHECKPOINT_ATTEMPTED = 128
"""Where the log's index says how many frames a checkpoint may have copied (SQLite's walformat)."""
SHAPES = ("cut", "zeros", "junk")
FAITHFUL = Settings(snapshot_entries=1 << 30, retained_chars=1 << 30)
"""One commit an entry, and nothing beside."""


async def fill(directory: Path, size: int, at: int, tell: Tell) -> None:
    """Say turn after turn, until it is killed at boundary `at` of its writes."""
    watch_disk(Death(at))
    hand = Hand(SqliteStore(directory), tell, "first")
    hand.engine = Engine(hand.engine.store, CLOCK, FAITHFUL)
    await hand.take()
    for number in range(10_000):
        await hand.say(f"{number} ".ljust(size, "x"))


async def open_it(directory: Path, tell: Tell) -> None:
    """Read what is there, take the call, and go on."""
    store = SqliteStore(directory)
    try:
        await go_on(store, tell)
    except StoreUnusable as error:
        tell(unusable=str(error))
    await store.aclose()


async def go_on(store: SqliteStore, tell: Tell) -> None:
    heir = Hand(store, lambda **_: None, "heir")
    heir.engine = Engine(store, CLOCK, FAITHFUL)
    found = [number_of(turn.content) for turn in await heir.engine.turns(CALL)]
    entries = (await heir.engine.read(CALL)).position
    await heir.take()
    await heir.say("-1 heir")
    after = [number_of(turn.content) for turn in await heir.engine.turns(CALL)]
    tell(found=found, entries=entries, after=after)


def number_of(text: str) -> int:
    return int(text.split()[0])


def commits(log: bytes) -> list[int]:
    """Return where in the log each whole transaction of its newest generation ends."""
    if len(log) < WAL_HEADER:
        return []
    magic, _, size, _, salts = struct.unpack_from(">IIIIQ", log)
    order = ">" if magic & 1 else "<"
    known = sums(log[:24], order, (0, 0))
    ends = []
    for start in range(WAL_HEADER, len(log) - size - FRAME_HEADER + 1, size + FRAME_HEADER):
        end = start + FRAME_HEADER + size
        _, pages, frame_salts, *told = struct.unpack_from(">IIQII", log, start)
        known = sums(log[start : start + 8], order, known)
        known = sums(log[start + FRAME_HEADER : end], order, known)
        if frame_salts != salts or list(known) != told:
            break
        if pages:
            ends.append(end)
    return ends


def sums(data: bytes, order: str, known: tuple[int, int]) -> tuple[int, int]:
    """Return the log's checksum (SQLite's fileformat2) with `data` counted in."""
    one, two = known
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def copied(log: bytes, index: bytes) -> int:
    """Return up to where in the log a checkpoint has begun to copy it into the file."""
    (frames,) = struct.unpack_from("=I", index, CHECKPOINT_ATTEMPTED)
    (size,) = struct.unpack_from(">I", log, 8)
    return WAL_HEADER + int(frames) * (FRAME_HEADER + int(size)) if frames else 0


class Torn:
    """One killed worker's directory, torn again and again."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._killed, self._torn = directory / "killed", directory / "torn"
        self._chance = random.Random(seed)
        self.acked = self.tries = self.torn_off = self.unusable = 0

    def fill(self, size: int) -> None:
        at = self._chance.randint(*((300, 1500) if size < 10_000 else (7000, 9000)))
        with raise_child(partial(fill, self._killed, size, at)) as child:
            child.end(60)
        self.acked = len(child.values("acked"))
        self.log = next(self._killed.rglob("*-wal")).read_bytes()
        self.ends = commits(self.log)
        self.copied = copied(self.log, next(self._killed.rglob("*-shm")).read_bytes())
        self.total = self._opened(self.log, stale_index=True).values("entries")[0]
        assert self.total >= self.acked + 2, "SIGKILL alone lost something"

    def tear(self, cut: int) -> None:
        """Tear it at `cut`: what was synced below is there, what follows is not believed.

        Below what a checkpoint has begun to copy no loss of power tears it, because that was
        synced before: if a disk lies, the file is told to be damaged, or can be read.
        """
        shape = self._chance.choice(SHAPES)
        log = self.log[:cut] + self._tail(shape, len(self.log) - cut)
        seen = self._opened(log, stale_index=self._chance.random() < 0.5).told[-1]
        self.tries += 1
        self.unusable += "unusable" in seen
        where = f"{shape} at {cut} of {len(self.log)}, {self.total} entries: {seen}"
        if cut >= self.copied:
            self._look(seen, cut, where, exact=shape == "cut")
        elif "unusable" not in seen:
            assert_goes_on(seen, where)

    def _look(self, seen: dict[str, Any], cut: int, where: str, *, exact: bool) -> None:
        kept = sum(end <= cut for end in self.ends)
        entries = self.total - len(self.ends) + kept
        assert "unusable" not in seen, where
        assert seen["entries"] >= entries, f"{where}: {entries} were synced"
        assert not exact or seen["entries"] == entries, where
        assert_goes_on(seen, where)
        self.torn_off += self.total - entries

    def _tail(self, shape: str, length: int) -> bytes:
        return {"cut": b"", "zeros": bytes(length), "junk": self._chance.randbytes(length)}[shape]

    def _opened(self, log: bytes, *, stale_index: bool) -> Child:
        shutil.rmtree(self._torn, ignore_errors=True)
        shutil.copytree(self._killed, self._torn)
        next(self._torn.rglob("*-wal")).write_bytes(log)
        if not stale_index:
            next(self._torn.rglob("*-shm")).unlink()
        return done(partial(open_it, self._torn))

    def places(self, count: int) -> list[int]:
        """Return where to tear: in the newest commit, around commits and headers, anywhere."""
        last = self.ends[-1] if self.ends else 0
        unacknowledged = [last, last + 1, (last + len(self.log)) // 2, len(self.log) - 1]
        edges = [0, 1, WAL_HEADER - 1, WAL_HEADER, WAL_HEADER + FRAME_HEADER]
        around = [end + by for end in self._some(self.ends, count // 6) for by in (-1, 0, 1)]
        known = [*unacknowledged, *edges, *around]
        anywhere = [self._chance.randint(0, len(self.log)) for _ in range(count - len(known))]
        return [*known, *anywhere][:count]

    def _some(self, ends: list[int], count: int) -> list[int]:
        return self._chance.sample(ends, min(count, len(ends)))


def assert_goes_on(seen: dict[str, Any], where: str) -> None:
    assert seen["found"] == list(range(max(0, seen["entries"] - 2))), f"{where}: a gap"
    assert seen["after"] == [*seen["found"], -1], f"{where}: it does not go on"


def main(directory: str, seed: str, cuts: str, size: str) -> None:
    torn = Torn(Path(directory), int(seed))
    torn.fill(int(size))
    for cut in torn.places(int(cuts)):
        torn.tear(min(cut, len(torn.log)))
    told = {"kills": 1, "acked": torn.acked, "torn": torn.tries, "torn_off": torn.torn_off}
    log = {"log_bytes": len(torn.log), "commits": len(torn.ends), "copied": torn.copied}
    print(json.dumps(told | log | {"unusable": torn.unusable}))
