"""How a call stands, for a person or a watcher who looks at many."""

from __future__ import annotations

from typing import Literal

from ..models import Value
from .fold import Fold
from .liveness import Liveness

__all__ = ["CallStanding", "CallSummary", "summary"]

CallStanding = Literal["live", "lapsed", "left", "ended", "erased"]


class CallSummary(Value):
    """One call in a list. `lapsed` is a call that goes on and has no live holder. `turns` are
    those of the current run; `said_at` is when the newest of them was said (Unix seconds)."""

    call_id: str
    state: CallStanding
    run: int
    turns: int
    epoch: int
    position: int
    holder: str | None = None
    agent_name: str | None = None
    opened_at: float = 0.0
    said_at: float | None = None
    seen_at: float = 0.0
    """When it was last heard of: opened, written to, renewed or closed (Unix seconds)."""


def summary(fold: Fold, call: str, liveness: Liveness, renewed_at: float) -> CallSummary:
    """Return how the call stands."""
    run, lease = fold.run, fold.lease
    times = [renewed_at if lease else 0.0, lease.at if lease else 0.0]
    times += [run.opened_at, run.said_at or 0.0, run.outcome_at or 0.0] if run else []
    return CallSummary(
        call_id=call,
        state=_standing(fold, liveness),
        run=run.number if run else 0,
        turns=fold.run_turns,
        epoch=fold.epoch,
        position=fold.position,
        holder=lease.writer if lease else None,
        agent_name=lease.agent_name if lease else None,
        opened_at=run.opened_at if run else 0.0,
        said_at=run.said_at if run else None,
        seen_at=max(times),
    )


def _standing(fold: Fold, liveness: Liveness) -> CallStanding:
    if liveness is Liveness.LIVE:
        return "live"
    match fold.run.outcome if fold.run else None:
        case "ended":
            return "ended"
        case "left":
            return "left"
        case "erased":
            return "erased"
        case _:
            return "lapsed"
