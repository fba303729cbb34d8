"""The outbox: a writer's records in order, numbered, until each is acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import anyio

from .errors import OutboxFull
from .models import (
    Action,
    Dropped,
    Output,
    Pointer,
    Record,
    Turn,
    Userdata,
    WorkingStateUpdate,
)
from .settings import Settings
from .superseded import Superseded

__all__ = ["Outbox", "Receipt", "Tenure", "Unit", "record_size"]


@dataclass(frozen=True, slots=True)
class Tenure:
    """What a writer held when it lost the call: its run and its epoch."""

    run: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What is sent as one entry; sent again it is the same to the last record (rule 3)."""

    first: int
    records: tuple[Record, ...]

    @property
    def last(self) -> int:
        """The number of its last record."""
        return self.first + len(self.records) - 1


class Receipt:
    """Tells how one record was accepted, once it was: `epoch` is the lease that it was written
    under, 0 if it was provisional, late, or dropped; None as long as it is not known."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.epoch: int | None = None
        self._known = anyio.Event()

    def settle(self, epoch: int) -> None:
        """It was accepted so."""
        self.epoch = epoch
        self._known.set()

    async def wait(self) -> None:
        """Return once `epoch` is known."""
        await self._known.wait()


class Outbox:
    """Numbers records 1, 2, 3 ... and forgets them only when they are acknowledged.

    With `redacts` a record is raw until `redacted` gave back what may be stored of it; what is
    raw is in no unit, and is spooled nowhere.
    """

    def __init__(self, settings: Settings, *, redacts: bool = False) -> None:
        """Begin empty."""
        self._settings = settings
        self._redacts = redacts
        self._records: deque[Record] = deque()
        self._raw = 0
        self._size = 0
        self._markers = 0
        self._unit: Unit | None = None
        self._lost: deque[tuple[int, Tenure]] = deque()
        self._superseded = Superseded()
        self._receipts: dict[int, Receipt] = {}
        self._changed = anyio.Event()
        self.acknowledged = 0
        self.refused = 0
        """Records that did not fit: counted, and the caller of `add` was told."""
        self.made_room = 0
        """Superseded records that were dropped for newer ones: markers have their places."""
        self.failing = False
        """Whether the last try to store a unit failed."""
        self.replaced: set[int] = set()
        """Numbers whose record was replaced by a marker, until its reader discards them."""

    @property
    def last(self) -> int:
        """The number of the newest record."""
        return self.acknowledged + len(self._records)

    @property
    def lag(self) -> int:
        """How many records are not durable yet."""
        return len(self._records)

    @property
    def lost(self) -> Sequence[tuple[int, Tenure]]:
        """The tenures that were lost with records unsent, and the number of each one's last."""
        return tuple(self._lost)

    def add(self, record: Record) -> int:
        """Queue a record and return its number. Never waits.

        Raises:
            OutboxFull: A limit is reached; the record was not queued, and is counted.
        """
        size = record_size(record)
        if not self._fits(size) and not (self.make_room() and self._fits(size)):
            self.refused += 1
            raise OutboxFull(
                f"{len(self._records)} records wait to be stored: the store does not answer, "
                "and this worker keeps no more"
            )
        self._records.append(record)
        self._raw += self._redacts
        self._size += size
        self._superseded.note(self.last, record)
        self.tell()
        return self.last

    def _fits(self, size: int) -> bool:
        waiting = len(self._records) - self._markers
        fits = self._size + size <= self._settings.outbox_bytes
        return fits and waiting < self._settings.outbox_records

    def receipt(self, number: int) -> Receipt:
        """Return what will tell how the record of this number, not acknowledged yet, is accepted.
        It is to be given back (`no_receipt`)."""
        return self._receipts.setdefault(number, Receipt())

    def no_receipt(self, number: int) -> None:
        """Nobody waits for it any more."""
        self._receipts.pop(number, None)

    # --- redaction ------------------------------------------------------------------------------

    def raw(self) -> Unit | None:
        """Return the oldest records that were not redacted, at most a batch of them."""
        if not self._raw:
            return None
        done = len(self._records) - self._raw
        raw = islice(self._records, done, done + self._settings.batch_records)
        return Unit(self.acknowledged + done + 1, tuple(raw))

    def redacted(self, raw: Unit, records: Sequence[Record]) -> None:
        """Put what may be stored in the places of what was `raw`."""
        for number, was, record in zip(
            range(raw.first, raw.last + 1), raw.records, records, strict=True
        ):
            if number > self.acknowledged and self._records[self._index(number)] is was:
                self._put(number, record)
        self._raw = min(self._raw, self.last - raw.last)
        self.tell()

    # --- sending --------------------------------------------------------------------------------

    def unit(self) -> Unit | None:
        """Return what to send next, the same until it is acknowledged; None if all of it is raw."""
        if self._unit is None and len(self._records) > self._raw:
            self._unit = Unit(self.acknowledged + 1, self._take())
        return self._unit

    def acknowledge(self, last: int, epoch: int = 0) -> None:
        """Forget the records up to number `last`: they are durable, accepted under the lease of
        `epoch`, or without one (0)."""
        while self._records and self.acknowledged < last:
            record = self._records.popleft()
            self._size -= record_size(record)
            self._markers -= isinstance(record, Dropped)
            self.acknowledged += 1
            if receipt := self._receipts.pop(self.acknowledged, None):
                receipt.settle(0 if isinstance(record, Dropped) else epoch)
        self._raw = min(self._raw, len(self._records))
        while self._lost and self._lost[0][0] <= self.acknowledged:
            self._lost.popleft()
        self._superseded.forget(self.acknowledged)
        self.replaced -= {number for number in self.replaced if number <= self.acknowledged}
        self._unit = None
        self.failing = False
        self.tell()

    def failed(self) -> None:
        """A unit could not be stored: the store does not answer."""
        if not self.failing:
            self.failing = True
            self.tell()

    def lose(self, tenure: Tenure) -> None:
        """What is queued so far belongs to a tenure that is lost: it goes out as late records,
        even if this writer has the call again by then."""
        if self._records:
            self._lost.append((self.last, tenure))

    def lost_with(self, unit: Unit) -> Tenure | None:
        """Return the lost tenure that the unit belongs to, if any."""
        return self._lost[0][1] if self._lost and unit.first <= self._lost[0][0] else None

    def give_up(self, unit: Unit, reason: str) -> None:
        """Put numbered markers where records that can never be stored were (rule 4)."""
        for number in range(unit.first, unit.last + 1):
            self._drop(number, reason)
        self.refused += len(unit.records)
        self._unit = None

    def clear(self) -> int:
        """Drop everything, because it may never be written; return how many records."""
        dropped = len(self._records)
        self.acknowledge(self.last)
        self.refused += dropped
        return dropped

    # --- the spool ------------------------------------------------------------------------------

    def after(self, number: int) -> Sequence[tuple[int, Record]]:
        """Return the oldest records above `number` that may be stored, at most a batch."""
        begin = max(number - self.acknowledged, 0)
        end = min(len(self._records) - self._raw, begin + self._settings.batch_records)
        records: list[tuple[int, Record]] = []
        size = 0
        for offset, record in enumerate(islice(self._records, begin, max(begin, end)), 1):
            size += record_size(record)
            if records and size > self._settings.batch_bytes:
                break
            records.append((self.acknowledged + begin + offset, record))
        return records

    def markers(self, upto: int) -> Sequence[tuple[int, Record]]:
        """Return the markers up to number `upto` that replaced a record (see `replaced`)."""
        numbers = sorted(n for n in self.replaced if self.acknowledged < n <= upto)
        return [(number, self._records[self._index(number)]) for number in numbers]

    def make_room(self) -> bool:
        """Put markers where records were that later ones have made void; whether any was."""
        flying = self._unit.last if self._unit else self.acknowledged
        numbers = [number for number in self._superseded.take() if number > flying]
        for number in numbers:
            self._drop(number, "superseded")
        self.made_room += len(numbers)
        return bool(numbers)

    async def wait_change(self) -> None:
        """Return when a record was added or acknowledged after this was called."""
        await self._changed.wait()

    # --- inside ---------------------------------------------------------------------------------

    def _index(self, number: int) -> int:
        return number - self.acknowledged - 1

    def _put(self, number: int, record: Record) -> None:
        index = self._index(number)
        self._size += record_size(record) - record_size(self._records[index])
        self._markers += isinstance(record, Dropped)
        self._markers -= isinstance(self._records[index], Dropped)
        self._records[index] = record

    def _drop(self, number: int, reason: str) -> None:
        record = self._records[self._index(number)]
        of = getattr(record, "kind", "?")
        self._put(number, Dropped(at=record.at, of=of, reason=reason[:200]))
        self.replaced.add(number)

    def _take(self) -> tuple[Record, ...]:
        taken: list[Record] = []
        size = 0
        most = len(self._records) - self._raw
        if self._lost:
            most = min(most, self._lost[0][0] - self.acknowledged)
        for record in islice(self._records, most):
            size += record_size(record)
            over = len(taken) >= self._settings.batch_records or size > self._settings.batch_bytes
            if taken and over:
                break
            taken.append(record)
        return tuple(taken)

    def tell(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()
        self._changed = anyio.Event()


def record_size(record: Record) -> int:
    """Return roughly how much memory and wire a record takes."""
    if isinstance(record, Turn):
        return len(record.content) + 200
    if isinstance(record, Action):
        return len(record.arguments) + len(record.result or "") + 500
    if isinstance(record, Userdata | WorkingStateUpdate | Pointer | Output):
        return len(repr(record)) + 200
    return 200 if isinstance(record, Dropped) else 500
