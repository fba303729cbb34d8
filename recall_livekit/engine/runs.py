"""Which call is this? Whether a worker goes on with the current run or opens a new one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..models import Value
from ..settings import Settings
from .fold import Fold
from .folded import RunView

logger = logging.getLogger("recall_livekit")

__all__ = ["Origin", "SameCall", "continues"]


class Origin(Value):
    """Where a run comes from: the room's sid, the caller (participant identity or SIP number),
    and when it was last alive (Unix seconds)."""

    room_sid: str | None = None
    caller: str | None = None
    at: float = 0.0


SameCall = Callable[[Origin, Origin], bool]
"""Says whether a run of another room goes on here: `same_call(previous, current)`."""


def continues(
    fold: Fold,
    origin: Origin,
    *,
    settings: Settings,
    same_call: SameCall | None = None,
    renewed_at: float = 0.0,
    live: bool = False,
) -> bool:
    """Whether `origin` goes on with the fold's current run, decided at `origin.at`.

    The same room goes on while it was heard of within `resume_window`; another room only if
    `same_call` says so (default: the same caller within `rejoin_window`). Without room sids the
    age does not count: the call id was chosen by hand; nor does it where this worker saw for
    itself that the call was `live`, whatever its clock says.
    """
    run = fold.run
    if run is None or run.number <= fold.erased_run or run.outcome == "ended":
        return False
    if run.outcome == "left" and origin.at - (run.outcome_at or 0.0) > settings.rejoin_window:
        return False
    last = _last_alive(fold, run, renewed_at)
    if origin.room_sid is None or run.room_sid is None:
        return True
    if origin.room_sid == run.room_sid:
        return live or origin.at - last <= settings.resume_window
    previous = Origin(room_sid=run.room_sid, caller=run.caller, at=last)
    if same_call is not None:
        return _ask(same_call, previous, origin)
    return _same_caller(previous, origin, settings.rejoin_window)


def _last_alive(fold: Fold, run: RunView, renewed_at: float) -> float:
    lease_at = fold.lease.at if fold.lease and fold.lease.run == run.number else 0.0
    return max(run.opened_at, run.said_at or 0.0, run.outcome_at or 0.0, lease_at, renewed_at)


def _ask(same_call: SameCall, previous: Origin, current: Origin) -> bool:
    """A fault of the application's function makes a new run: the lesser harm."""
    try:
        return bool(same_call(previous, current))
    except Exception:
        logger.exception("same_call failed: taken as another call")
        return False


def _same_caller(previous: Origin, current: Origin, window: float) -> bool:
    known = previous.caller is not None and previous.caller == current.caller
    return known and current.at - previous.at <= window
