"""Which call is this? Whether a worker goes on with the current run or opens a new one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..models import Value
from ..settings import Settings
from .fold import Fold
from .folded import RunView

logger = logging.getLogger("recall_livekit")

__all__ = ["Origin", "SameCall", "asked_about", "continues"]


class Origin(Value):
    """Where a run comes from: the room's sid, the caller (participant identity or SIP number),
    and when it was last alive (Unix seconds).

    `verdict` is what the worker's own `same_call` said of a run, by that run's number: how a
    function of the application reaches an engine on the other side of a wire."""

    room_sid: str | None = None
    caller: str | None = None
    at: float = 0.0
    verdict: tuple[int, bool] | None = None


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
    if origin.verdict is not None and origin.verdict[0] == run.number:
        return origin.verdict[1]
    previous = Origin(room_sid=run.room_sid, caller=run.caller, at=last)
    if same_call is not None:
        return _ask(same_call, previous, origin)
    return _same_caller(previous, origin, settings.rejoin_window)


def asked_about(fold: Fold, origin: Origin | None, renewed_at: float) -> Origin | None:
    """Return the run of another room that `same_call` would be asked about, if there is one."""
    run = fold.run
    if run is None or origin is None or run.number <= fold.erased_run or run.outcome == "ended":
        return None
    if origin.room_sid is None or run.room_sid in (None, origin.room_sid):
        return None
    last = _last_alive(fold, run, renewed_at)
    return Origin(room_sid=run.room_sid, caller=run.caller, at=last)


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
