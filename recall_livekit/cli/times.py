"""Times and durations as people write and read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

__all__ = ["ago", "clock", "iso", "lasting", "moment", "seconds_of"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``15m``, ``12h``, ``30d`` or ``2w``.

    Raises:
        ValueError: It is none, or zero.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 0 < seconds < 1e11:
        raise ValueError(f"{text!r} is no duration: write 90s, 15m, 12h, 30d or 2w")
    return seconds


def _local(at: float) -> datetime | None:
    """Return the time here; None if it is one that no clock shows (a writer's may be wrong)."""
    try:
        return datetime.fromtimestamp(at).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def clock(at: float) -> str:
    """Return the time of day, to the second."""
    local = _local(at)
    return local.strftime("%H:%M:%S") if local else f"{at:g}"


def iso(at: float) -> str:
    """Return the time for a program that reads lines: local, with its offset."""
    local = _local(at)
    return local.isoformat(timespec="seconds") if local else f"{at:g}"


def moment(at: float, now: float) -> str:
    """Return date and time, as far as they do not go without saying."""
    local, today = _local(at), _local(now)
    if local is None or today is None:
        return f"{at:g}"
    day = local.date()
    if day == today.date():
        return local.strftime("today %H:%M:%S")
    if day == today.date() - timedelta(days=1):
        return local.strftime("yesterday %H:%M:%S")
    year = "" if day.year == today.year else f"{day.year}-"
    return f"{year}{local.strftime('%m-%d %H:%M')}"


def ago(at: float, now: float) -> str:
    """Return how long ago it was, roughly."""
    seconds = now - at
    if not 0 <= seconds < 1e10:
        return "just now" if -5 < seconds < 0 else f"at {moment(at, now)}"
    return "just now" if seconds < 1 else f"{_rough(seconds)} ago"


def lasting(seconds: float) -> str:
    """Return how long something took."""
    if not 0 <= seconds < 1e10:
        return f"{seconds:g} s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def _rough(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{int(seconds // unit)} {name}"
    return f"{int(seconds)} s"
