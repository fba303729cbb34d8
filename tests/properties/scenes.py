"""Whole chains, written by the real engine for workers who ask for anything, allowed or not.

Every text that a worker writes carries a mark of its own, `kind/call/run/writer/number`: wherever
it turns up later, it tells where it came from.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from recall_livekit import Settings
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.entries import Entry, dump_entry, load_entry
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import entry_id
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.errors import Conflict, RecallError
from recall_livekit.models import Outcome, Partial, Record, Role, Value
from recall_livekit.stores.base import Cell
from recall_livekit.testing.clock import FakeClock

MARK = "@"
ROOMY = 1 << 20
SETTINGS = Settings(snapshot_entries=1, retained_chars=2000, briefing_tokens=400)

V = TypeVar("V", bound=Value)


class Mark(NamedTuple):
    """Who wrote this, and where."""

    kind: str
    call: str
    run: int
    writer: str
    number: int

    def __str__(self) -> str:
        return "/".join(map(str, self))


_MARKS = re.compile(r"([a-z_]+)/([a-z]+)/([0-9]+)/(w[0-9]e[0-9]+)/([0-9]+)")


def marks(text: str | bytes) -> list[Mark]:
    """Return the marks in `text`, in its order."""
    text = text if isinstance(text, str) else text.decode()
    return [Mark(k, c, int(r), w, int(n)) for k, c, r, w, n in _MARKS.findall(text)]


def marked(value: V, mark: Mark) -> V:
    """Return the value with its texts marked."""
    return type(value).model_validate_json(value.model_dump_json().replace(MARK, str(mark)))


# --- folding ------------------------------------------------------------------------------------


def fold(entries: Iterable[bytes], onto: Fold | None = None, retained: int = ROOMY) -> Fold:
    """Return the fold of the entries, on top of `onto` if that is given."""
    folded = onto or Fold(retained)
    for data in entries:
        folded.apply(load_entry(data), entry_id(data))
    return folded


def stored(entries: Iterable[Entry]) -> list[bytes]:
    """Return the entries as a store has them."""
    return [dump_entry(entry) for entry in entries]


# --- the store ----------------------------------------------------------------------------------


class Book:
    """A store that forgets nothing: `appended` is the chain as it was before erasures.

    `left` is what a reader is given.
    """

    def __init__(self) -> None:
        self.appended: defaultdict[str, list[bytes]] = defaultdict(list)
        self.left: defaultdict[str, list[bytes]] = defaultdict(list)
        self.cells: dict[tuple[str, str], Cell] = {}
        self._versions = itertools.count(1)

    async def append(self, call: str, position: int, entry: bytes) -> None:
        if position != len(self.left[call]):
            raise Conflict("taken, or nothing below")
        self.left[call].append(entry)
        self.appended[call].append(entry)

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        return self.left[call][start : start + limit]

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        self.left[call][start : start + len(entries)] = entries

    async def get_cell(self, call: str, name: str) -> Cell | None:
        return self.cells.get((call, name))

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        known = self.cells.get((call, name))
        if (known.version if known else None) != version:
            raise Conflict("another version")
        self.cells[call, name] = Cell(value, str(next(self._versions)))
        return self.cells[call, name].version

    async def scrub(self, call: str) -> None:
        return

    async def calls(self) -> AsyncIterator[str]:
        for call in self.left:
            yield call

    async def aclose(self) -> None:
        return


# --- the scene and its steps --------------------------------------------------------------------


@dataclass
class Scene:
    """Two engines on one book; each request goes to the one that is next."""

    book: Book = field(default_factory=Book)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.engines = [self.new_engine(), self.new_engine()]
        self._turns = itertools.cycle(self.engines)
        self._folds: dict[str, Fold] = {}

    def new_engine(self) -> Engine:
        return Engine(self.book, self.clock, SETTINGS)

    def next_engine(self) -> Engine:
        return next(self._turns)

    def fold(self, call: str) -> Fold:
        """Return the fold of a reader that was there all along."""
        known = self._folds.setdefault(call, Fold(ROOMY))
        return fold(self.book.appended[call][known.position :], onto=known)

    async def go_through(self, call: str, step: Step) -> None:
        """Take one step. That it is refused is an answer like any other."""
        with contextlib.suppress(RecallError):
            await step.take(self, call)


def play(stories: Mapping[str, Sequence[Step]]) -> Scene:
    """Return the scene after these steps, the calls' in turns."""
    scene = Scene()

    async def course() -> None:
        for steps in itertools.zip_longest(*stories.values()):
            for call, step in zip(stories, steps, strict=True):
                if step is not None:
                    await scene.go_through(call, step)

    asyncio.run(course())
    return scene


def written(story: Sequence[Step]) -> list[bytes]:
    """Return the chain of one call after these steps, as it was before erasures."""
    return play({"anna": story}).book.appended["anna"]


class Step(Protocol):
    """Something that a worker asks for, or that happens."""

    async def take(self, scene: Scene, call: str) -> None: ...


def _name(fold: Fold, who: int) -> str:
    """Return a writer: 0 is the holder, if there is one. Erasures need writers of a new name."""
    if who == 0 and fold.lease:
        return fold.lease.writer
    return f"w{who}e{fold.erases[-1] if fold.erases else 0}"


def _request(fold: Fold, call: str, who: int, another_room: bool) -> Acquire:
    writer, run = _name(fold, who), fold.run.number if fold.run else 0
    new = another_room or fold.run is None or run <= fold.erased_run
    sid = Mark("sid", call, run + 1, writer, fold.position)
    old = fold.run.room_sid if fold.run else None
    return Acquire(
        writer=writer,
        attempt=f"attempt-{fold.position}",
        ttl=6.0,
        origin=Origin(room_sid=str(sid) if new else old, caller=str(sid._replace(kind="caller"))),
        agent_name=str(sid._replace(kind="agent_name")),
        steal=True,
        read_position=fold.position,
    )


@dataclass(frozen=True)
class Fault:
    """What is wrong with a request: numbers off by `shift`, an epoch or a run of the past."""

    shift: int = 0
    epoch_back: int = 0
    run_back: int = 0


@dataclass(frozen=True)
class Says:
    """A writer sends records."""

    who: int
    records: tuple[Record, ...]
    provisional: bool = False
    fault: Fault = Fault()

    async def take(self, scene: Scene, call: str) -> None:
        fold, engine = scene.fold(call), scene.next_engine()
        writer, epoch = _name(fold, self.who), fold.epoch - self.fault.epoch_back
        first = max(1, fold.last_number(writer) + 1 + self.fault.shift)
        run = self._run(fold)
        records = [
            marked(one, Mark(one.kind, call, run, writer, number))
            for number, one in enumerate(self.records, first)
        ]
        if self.provisional:
            await engine.append_provisional(call, writer, first, records, run, epoch)
        else:
            await engine.append(call, writer, first, records, epoch)

    def _run(self, fold: Fold) -> int:
        if not self.provisional and fold.lease:
            return fold.lease.run
        return (fold.run.number if fold.run else 0) - self.fault.run_back


@dataclass(frozen=True)
class Takes:
    """A writer takes the lease from whoever has it."""

    who: int
    another_room: bool = False

    async def take(self, scene: Scene, call: str) -> None:
        request = _request(scene.fold(call), call, self.who, self.another_room)
        await scene.next_engine().acquire(call, request)


@dataclass(frozen=True)
class Opens:
    """A writer opens a run, if it is another call, to write provisional records."""

    who: int
    another_room: bool = False

    async def take(self, scene: Scene, call: str) -> None:
        request = _request(scene.fold(call), call, self.who, self.another_room)
        await scene.next_engine().open_run(call, request)


@dataclass(frozen=True)
class Leaves:
    """A writer gives the lease back; only the holder can."""

    who: int
    outcome: Outcome

    async def take(self, scene: Scene, call: str) -> None:
        fold = scene.fold(call)
        name = _name(fold, self.who)
        await scene.next_engine().release(call, name, fold.epoch, self.outcome)


@dataclass(frozen=True)
class Whispers:
    """A writer puts words under way beside the chain."""

    who: int
    role: Role
    text: str

    async def take(self, scene: Scene, call: str) -> None:
        fold = scene.fold(call)
        writer, run = _name(fold, self.who), fold.run.number if fold.run else 0
        after = fold.last_number(writer)
        mark = Mark("partial", call, run, writer, after)
        partial = Partial(role=self.role, text=self.text, at=scene.clock.now(), after=after)
        await scene.next_engine().put_partials(call, writer, run, [marked(partial, mark)])


@dataclass(frozen=True)
class Waits:
    """Nothing happens for a while."""

    seconds: float

    async def take(self, scene: Scene, call: str) -> None:
        scene.clock.advance(self.seconds)


@dataclass(frozen=True)
class Newer:
    """A worker of a later version writes an entry that this one does not know."""

    epoch_up: int

    async def take(self, scene: Scene, call: str) -> None:
        fold = scene.fold(call)
        words = Mark("newer", call, fold.run.number if fold.run else 0, "w0e0", fold.position)
        what = f'{{"v":2,"kind":"lease","epoch":{fold.epoch + self.epoch_up},"crew":"{words}"}}'
        await scene.book.append(call, fold.position, what.encode())


@dataclass(frozen=True)
class Erases:
    """Somebody erases the call."""

    async def take(self, scene: Scene, call: str) -> None:
        await scene.next_engine().erase(call)
