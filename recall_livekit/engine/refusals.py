"""Why a request is refused: decided on the fold of exactly what lies below it (rule 1)."""

from __future__ import annotations

from ..errors import Erased, Fenced, Gap, Held, InvalidRecord, RecallError, UnknownRun
from .entries import RecordsEntry
from .fold import Fold
from .folded import sid_hash
from .liveness import Liveness
from .requests import Acquire

__all__ = [
    "fenced",
    "refusal",
    "refuse_erased",
    "refuse_held",
    "refuse_other_epoch",
    "refuse_spooled",
]


def fenced(fold: Fold) -> Fenced:
    """Return the error that tells a writer who has the call now."""
    return Fenced(fold.epoch, fold.lease.writer if fold.lease else None)


def refuse_held(fold: Fold, writer: str, liveness: Liveness) -> None:
    """Raise `Held` if another writer's lease is in force and its holder lives."""
    if liveness is Liveness.LIVE and fold.lease and fold.lease.writer != writer:
        raise Held(fold.lease.writer, fold.epoch)


def refuse_other_epoch(fold: Fold, epoch: int) -> None:
    """Raise `Held` if a lease of another epoch is in force, and `Fenced` if there is none."""
    if fold.lease is None:
        raise fenced(fold)
    if fold.epoch != epoch:
        raise Held(fold.lease.writer, fold.epoch)


def refuse_erased(fold: Fold, request: Acquire) -> None:
    """Rule 12: an erased room does not come back, nor does a writer that read before."""
    if not fold.erases:
        return
    sid = request.origin.room_sid
    read_before = (request.read_position or 0) <= fold.erases[-1]
    wrote_before = _wrote_before(fold, request.writer)
    if (sid and sid_hash(sid) in fold.erased_sids) or read_before or wrote_before:
        raise Erased("this call was erased; what this worker knows of it is not written again")


def refuse_spooled(fold: Fold, request: Acquire) -> None:
    """Rule 17: of a writer that never read, it cannot be told whether it spoke before an erasure,
    unless it has an entry since, or its room has a run."""
    sid = request.origin.room_sid
    if request.read_position is not None or _wrote_before(fold, request.writer):
        refuse_erased(fold, request)
    elif not fold.erases or request.writer in fold.writers:
        return
    elif sid and sid_hash(sid) in fold.erased_sids:
        raise Erased("this call was erased; what is spooled of it is not written again")
    elif not sid or sid_hash(sid) not in fold.sids:
        raise UnknownRun("a spool's writer never read, and may have spoken before an erasure")


def _wrote_before(fold: Fold, writer: str) -> bool:
    """Whether the writer has an entry below the newest erasure."""
    known = fold.writers.get(writer)
    return known is not None and bool(fold.erases) and known.anchor < fold.erases[-1]


def refusal(fold: Fold, entry: RecordsEntry) -> RecallError | None:
    """Return why these records may not follow (rules 4 to 6: numbers, then epoch or run).

    An erasure comes first: who was told of it has dropped what it had, numbers and all.
    """
    run = entry.provisional_run
    if run is not None and (run <= fold.erased_run or _wrote_before(fold, entry.writer)):
        return Erased("the run that these records belong to was erased")
    expected = fold.last_number(entry.writer) + 1
    if entry.first != expected:
        return Gap(expected, entry.first)
    if run is None:
        return None if fold.holds(entry.writer, entry.epoch) else fenced(fold)
    if fold.run is None or not 1 <= run <= fold.run.number:
        return UnknownRun(f"the chain has no run {run}")
    if entry.epoch > fold.epoch:
        return InvalidRecord(f"no epoch {entry.epoch} can have been read: it is {fold.epoch}")
    return None
