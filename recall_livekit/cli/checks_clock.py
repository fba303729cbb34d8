"""What ``doctor`` checks of two clocks: this one, and a server's."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import parsedate_to_datetime

from .findings import Finding, ok, warn
from .times import lasting

__all__ = ["clock_finding"]


def clock_finding(
    date: str,
    now: float,
    what: str,
    worse: Callable[[str, str, str], Finding],
    *,
    off: float,
    harm: str,
) -> Finding:
    """Return how far this clock is from a server's, which its Date header tells: `worse` if more
    than `off` seconds, which does this `harm`."""
    try:
        apart = now - parsedate_to_datetime(date).timestamp() - 0.5
    except ValueError:
        return warn(what, "the server tells no time", "check what stands in front of it")
    if abs(apart) <= off:
        return ok(what, f"within {off:g} s of the server's")
    way = "ahead of" if apart > 0 else "behind"
    says = f"{lasting(abs(apart))} {way} the server's: {harm}"
    return worse(what, says, "let NTP set the clocks of both")
