"""The outbox: a writer's records in order, numbered, until each is acknowledged."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

import anyio

from .errors import OutboxFull
from .models import Dropped, Record, Turn, Userdata, WorkingStateUpdate
from .settings import Settings

__all__ = ["Outbox", "Tenure", "Unit"]


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


class Outbox:
    """Numbers records 1, 2, 3 ... and forgets them only when they are acknowledged."""

    def __init__(self, settings: Settings) -> None:
        """Begin empty."""
        self._settings = settings
        self._records: deque[Record] = deque()
        self._size = 0
        self._unit: Unit | None = None
        self._lost: deque[tuple[int, Tenure]] = deque()
        self._changed = anyio.Event()
        self.acknowledged = 0
        self.refused = 0
        """Records that did not fit: counted, and the caller of `add` was told."""

    @property
    def last(self) -> int:
        """The number of the newest record."""
        return self.acknowledged + len(self._records)

    @property
    def lag(self) -> int:
        """How many records are not durable yet."""
        return len(self._records)

    def add(self, record: Record) -> int:
        """Queue a record and return its number. Never waits.

        Raises:
            OutboxFull: A limit is reached; the record was not queued, and is counted.
        """
        size = record_size(record)
        full = len(self._records) >= self._settings.outbox_records
        if full or self._size + size > self._settings.outbox_bytes:
            self.refused += 1
            raise OutboxFull(
                f"{len(self._records)} records wait to be stored: the store does not answer, "
                "and this worker keeps no more"
            )
        self._records.append(record)
        self._size += size
        self.tell()
        return self.last

    def unit(self) -> Unit | None:
        """Return what to send next; the same until it is acknowledged."""
        if self._unit is None and self._records:
            self._unit = Unit(self.acknowledged + 1, self._take())
        return self._unit

    def acknowledge(self, last: int) -> None:
        """Forget the records up to number `last`: they are durable."""
        while self._records and self.acknowledged < last:
            self._size -= record_size(self._records.popleft())
            self.acknowledged += 1
        while self._lost and self._lost[0][0] <= self.acknowledged:
            self._lost.popleft()
        self._unit = None
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
        for index, record in enumerate(unit.records):
            marker = Dropped(at=record.at, of=getattr(record, "kind", "?"), reason=reason[:200])
            self._size += record_size(marker) - record_size(record)
            self._records[index] = marker
        self.refused += len(unit.records)
        self._unit = None

    def clear(self) -> int:
        """Drop everything, because it may never be written; return how many records."""
        dropped = len(self._records)
        self.acknowledge(self.last)
        self.refused += dropped
        return dropped

    async def wait_change(self) -> None:
        """Return when a record was added or acknowledged after this was called."""
        await self._changed.wait()

    def _take(self) -> tuple[Record, ...]:
        taken: list[Record] = []
        size = 0
        most = self._lost[0][0] - self.acknowledged if self._lost else len(self._records)
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
    if isinstance(record, Userdata | WorkingStateUpdate):
        return len(repr(record)) + 200
    return 500
