"""How long nobody was there for the caller: what is known of the last sign of life of a call."""

from __future__ import annotations

from collections.abc import Iterable

from .fold import Fold

__all__ = ["signs_of_life", "silence_at"]


def signs_of_life(fold: Fold, renewed_at: float) -> tuple[float, float]:
    """Return when the call was last heard of: by the clock of the records (leases, renewals and
    releases), and by the clocks of those who wrote what was said (0.0: never).

    Of a call that nobody has, `renewed_at` tells nothing.
    """
    run, lease = fold.run, fold.lease
    if run is None or run.number <= fold.erased_run:
        return 0.0, 0.0
    held = max(lease.at, renewed_at) if lease and lease.run == run.number else 0.0
    return max(run.opened_at, run.outcome_at or 0.0, held), run.said_at or 0.0


def silence_at(now: float, recorded: float, said: Iterable[float]) -> float | None:
    """Return for how many seconds nobody has been there `now`; None if nobody ever was.

    A writer's clock may be wrong. One that is ahead is not believed, and one that is behind makes
    no silence longer than since the last sign by the clock of the records, which is at most a
    third of a lease's TTL older than the last word.
    """
    if not recorded:
        return None
    return max(0.0, now - max([recorded, *(at for at in said if at <= now)]))
