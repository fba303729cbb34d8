"""The run that a spool's words belong to when their writer knew none (rules 5 and 17).

They are decided at the time when they were said. They go into a run that is there; they open one
only where nobody has gone on since, for a new run ends the one that is current.
"""

from __future__ import annotations

from ..errors import Held, StoreUnavailable, UnknownRun
from ..models import Value
from ..stores.base import Store
from .chain import PAGE, readable_entry
from .entries import LeaseEntry, RecordsEntry, RunEntry
from .fold import Fold
from .folded import RunView, sid_hash
from .liveness import Liveness

__all__ = ["Placing", "newest_run", "placing"]


class Placing(Value):
    """What a spool's words need: the run of this number; or the newest one that their writer, or
    their room, has in the chain; or, with none of that, a new one."""

    run: int | None = None
    of_writer: bool = False
    of_room: bool = False


def placing(
    fold: Fold,
    *,
    writer: str,
    room_sid: str | None,
    said_at: float,
    goes_on: bool,
    renewed_at: float,
    liveness: Liveness,
) -> Placing:
    """Decide it. `goes_on` is what `continues` says of the time when the words were said.

    Raises:
        Held: They open a run, and the call's current one is live: try later.
        UnknownRun: The call has gone on with another run since: no run was ever theirs.
    """
    run = fold.run
    if run is None or run.number <= fold.erased_run:
        return Placing()
    if writer in fold.writers:
        return Placing(of_writer=True)
    if goes_on or _said_in(run, room_sid, said_at):
        return Placing(run=run.number)
    if room_sid not in (None, run.room_sid) and sid_hash(room_sid or "") in fold.sids:
        return Placing(of_room=True)
    if _heard_of(fold, run, renewed_at) > said_at:
        raise UnknownRun("the call has gone on since a spool's words were said")
    if liveness is Liveness.LIVE and fold.lease is not None:
        raise Held(fold.lease.writer, fold.epoch)
    return Placing()


async def newest_run(
    store: Store, call: str, *, writer: str | None = None, room_sid: str | None = None
) -> int:
    """Return the newest run of this writer, or of this room, which was not erased. It reads the
    whole chain.

    Raises:
        StoreError: It could not be read, or an erasure took the run meanwhile.
    """
    at, found, leased = 0, 0, 0
    while page := await store.read(call, at, PAGE):
        for offset, data in enumerate(page):
            entry = readable_entry(data, at + offset)
            leased = entry.run if isinstance(entry, LeaseEntry) else leased
            if isinstance(entry, RunEntry) and room_sid and entry.room_sid == room_sid:
                found = entry.run
            if isinstance(entry, RecordsEntry | LeaseEntry | RunEntry) and entry.writer == writer:
                found = _run_of(entry, leased)
        at += len(page)
    if not found:
        raise StoreUnavailable("the run of a spool's words was there a moment ago")
    return found


def _run_of(entry: RecordsEntry | LeaseEntry | RunEntry, leased: int) -> int:
    return (entry.provisional_run or leased) if isinstance(entry, RecordsEntry) else entry.run


def _said_in(run: RunView, room_sid: str | None, said_at: float) -> bool:
    """Whether the words are of this run although it is over by now."""
    same_room = None in (room_sid, run.room_sid) or room_sid == run.room_sid
    return same_room and run.outcome_at is not None and said_at <= run.outcome_at


def _heard_of(fold: Fold, run: RunView, renewed_at: float) -> float:
    """When the run was heard of last."""
    renewed = renewed_at if fold.lease else 0.0
    return max(run.opened_at, run.said_at or 0.0, run.outcome_at or 0.0, renewed)
