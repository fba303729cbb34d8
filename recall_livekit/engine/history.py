"""The history of a call: every run, lease and version that its chain tells of, by one pure fold.

What counts, and when, is decided by `Fold`; this only writes down what it decided, for a person
or an export who look at a whole call. It costs O(chain), unlike anything on a caller's path.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..models import Turn
from .entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    StubEntry,
    UnknownEntry,
)
from .fold import Fold
from .noted import Erasure, History, LeaseEnd, LeaseHistory, RunHistory, Standing
from .run_notes import RunNotes

__all__ = ["HistoryFold", "history"]


def history(entries: Iterable[Entry], until: int | None = None) -> History:
    """Return the history that a chain tells, or told when `until` was its newest position.

    `entries` is the whole chain either way: what an erasure above `until` took is not told.
    """
    fold = HistoryFold(until)
    for entry in entries:
        fold.note(entry)
    return fold.history()


class HistoryFold(Fold):
    """A fold that forgets nothing but what was erased."""

    def __init__(self, until: int | None = None) -> None:
        """Begin with nothing. Entries above `until` change nothing, but for an erasure."""
        super().__init__(retained_chars=0)
        self._until = until
        self._seen = 0
        self._runs: dict[int, RunNotes] = {}
        self._leases: list[LeaseHistory] = []
        self._erasures: list[Erasure] = []
        self._seq = 0

    def note(self, entry: Entry) -> None:
        """Count the chain's next entry."""
        if self._until is None or self._seen <= self._until:
            self.apply(entry, "")
        elif isinstance(entry, EraseEntry):
            self._forget(entry.at)
        self._seen += 1

    def standing(self, entry: RecordsEntry) -> Standing:
        """Return how the records of the chain's next entry are going to count."""
        if entry.provisional_run is None:
            return "held"
        if self._must_wait(entry):
            return "waiting"
        current = self.run is not None and self.run.number == entry.provisional_run
        return "late" if self._is_late(entry) or not current else "provisional"

    def history(self) -> History:
        """Return what was folded so far, as a value that later entries do not change."""
        runs, seq = self._runs, self._seq
        if self.waiting:
            runs = {number: notes.copy() for number, notes in runs.items()}
        for position, entry in self.waiting:
            seq = _note(runs, seq, position, entry, entry.provisional_run or 0, "waiting")
        return History(
            position=self.position,
            epoch=self.epoch,
            runs=tuple(notes.history() for notes in runs.values()),
            leases=tuple(self._leases),
            erasures=tuple(self._erasures),
            unreadable=self.unreadable,
        )

    # --- what the fold decides ------------------------------------------------------------------

    def _records(self, entry: RecordsEntry) -> None:
        standing = self.standing(entry)
        run = entry.provisional_run if entry.provisional_run is not None else self._leased_run()
        super()._records(entry)
        if standing != "waiting":
            self._seq = _note(self._runs, self._seq, self.position, entry, run, standing)

    def _leased_run(self) -> int:
        return self.lease.run if self.lease else 0

    def _adopt(self) -> None:
        waiting = list(self.waiting)
        super()._adopt()
        for position, entry in waiting:
            run = entry.provisional_run or 0
            current = self.run is not None and self.run.number == run
            standing: Standing = "provisional" if current else "late"
            self._seq = _note(self._runs, self._seq, position, entry, run, standing)

    def _lease(self, entry: LeaseEntry) -> None:
        self._end_by_lease(entry.at, entry.writer)
        super()._lease(entry)
        self._leases.append(
            LeaseHistory(
                epoch=entry.epoch,
                writer=entry.writer,
                position=self.position,
                taken_at=entry.at,
                run=entry.run,
                agent_name=entry.agent_name,
                ttl=entry.ttl,
                sign="stream" if entry.stream else "lock" if entry.lock else "renewals",
            )
        )
        if entry.run in self._runs:
            self._runs[entry.run].end(None, None)

    def _settle_actions(self, holder: str) -> None:
        before = dict(self.actions)
        super()._settle_actions(holder)
        notes = self._runs.get(self.run.number) if self.run else None
        for key in before:
            if notes is not None:
                notes.settle(key, self.actions[key].status if key in self.actions else "abandoned")

    def _release(self, entry: ReleaseEntry) -> None:
        if self.lease and self.lease.run in self._runs:
            self._runs[self.lease.run].end(entry.outcome, entry.at)
        self._end_lease(entry.outcome, entry.at)
        super()._release(entry)

    def _open_run(self, entry: RunEntry) -> None:
        self._end_lease("followed", entry.at, entry.writer)
        super()._open_run(entry)
        self._runs[entry.run] = RunNotes(
            RunHistory(
                number=entry.run,
                position=self.position,
                opened_at=entry.at,
                room_sid=entry.room_sid,
                caller=entry.caller,
            )
        )

    def _erase(self, entry: EraseEntry) -> None:
        self._end_lease("erased", entry.at)
        super()._erase(entry)
        self._erasures.append(Erasure(position=self.position, at=entry.at, epoch=entry.epoch))
        self._forget(entry.at)

    def _stub(self, entry: StubEntry) -> None:
        super()._stub(entry)
        match entry.was:
            case "unknown":
                self._end_by_unknown(entry)
            case "lease":
                self._stub_lease(entry)
            case "release":
                self._end_lease("released", entry.at)
            case "run":
                self._end_lease("followed", entry.at, entry.writer)
                number = entry.run or 0
                stub = RunHistory(number=number, position=self.position, opened_at=entry.at)
                self._runs[number] = RunNotes(stub)
            case "erase":
                self._end_lease("erased", entry.at)
                erasure = Erasure(position=self.position, at=entry.at, epoch=entry.epoch)
                self._erasures.append(erasure)
                self._forget(entry.at)

    def _stub_lease(self, entry: StubEntry) -> None:
        self._end_by_lease(entry.at, entry.writer)
        lease = LeaseHistory(
            epoch=entry.epoch,
            writer=entry.writer or "",
            position=self.position,
            taken_at=entry.at,
        )
        self._leases.append(lease)

    def _unknown(self, entry: UnknownEntry) -> None:
        self._end_by_unknown(entry)
        super()._unknown(entry)

    # --- inside ---------------------------------------------------------------------------------

    def _end_by_lease(self, at: float, writer: str | None) -> None:
        again = bool(self._leases) and self._leases[-1].writer == writer
        self._end_lease("taken_again" if again else "taken_over", at, writer)

    def _end_by_unknown(self, entry: UnknownEntry | StubEntry) -> None:
        """Its epoch fences, whatever it is."""
        if self._leases and entry.epoch > self._leases[-1].epoch:
            self._end_lease("unknown", entry.at)

    def _end_lease(self, end: LeaseEnd, at: float, by: str | None = None) -> None:
        if self._leases and self._leases[-1].end is None:
            update = {"end": end, "ended_at": at, "ended_by": by}
            self._leases[-1] = self._leases[-1].model_copy(update=update)

    def _forget(self, at: float) -> None:
        """Keep of what is below an erasure only what its stubs tell (rule 13)."""
        self._seq = 0
        self._leases = [lease.erased() for lease in self._leases]
        self._runs = {number: notes.erased(at) for number, notes in self._runs.items()}


def _note(
    runs: dict[int, RunNotes],
    seq: int,
    position: int,
    entry: RecordsEntry,
    run: int,
    standing: Standing,
) -> int:
    """Write the entry's records into their run; return the number of the call's newest turn."""
    notes = runs.get(run)
    for number, record in enumerate(entry.records, entry.first):
        if isinstance(record, Turn):
            seq += 1
            record = record.model_copy(update={"seq": seq, "late": standing == "late"})
        if notes is not None and not notes.is_erased:
            where = {"position": position, "writer": entry.writer, "number": number}
            notes.note(record, {**where, "standing": standing})
    return seq
