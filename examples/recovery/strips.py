"""Voices as strips: how loud each was, one character for each piece of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["KILLED", "SILENT", "Strip", "Strips"]

KILLED, SILENT = "✗", "·"
_BARS = "▁▂▃▄▅▆▇█"
_FAINTEST, _LOUDEST = 60.0, 6_000.0
"""RMS of 16 bit samples; what is fainter is not drawn."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One voice. Its loudness is an RMS for each hundredth of a second, from the beginning on.

    Killed at a second, it is followed by silence up to another, if nobody speaks in its place.
    """

    name: str
    kind: Literal["agent", "caller"]
    loudness: Sequence[float]
    killed_at: float | None = None
    silent_until: float | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Strips:
    """Some voices in the same span of time; the ruler counts from `zero`. All in seconds."""

    strips: Sequence[Strip]
    start: float
    span: float
    zero: float = 0.0

    def drawn(self, strip: Strip, columns: int) -> str:
        """The voice as `columns` characters."""
        cell = self.span / columns
        times = [self.start + cell * column for column in range(columns)]
        return "".join(_drawn(strip, at, cell) for at in times)

    def ruler(self, columns: int) -> str:
        """Seconds from zero, above the strips."""
        every = 1 if self.span / columns < 0.15 else 2
        line = [" "] * columns
        first = math.ceil((self.start - self.zero) / every) * every
        for second in range(first, math.ceil(self.start + self.span - self.zero), every):
            column = int((second + self.zero - self.start) / self.span * columns)
            text = f"{second:+d}s" if self.zero and second else f"{second}s"
            if 0 <= column <= columns - len(text):
                line[column : column + len(text)] = text
        return "".join(line).rstrip()


def _drawn(strip: Strip, at: float, cell: float) -> str:
    killed, until = strip.killed_at, strip.silent_until
    if killed is not None and at <= killed < at + cell:
        return KILLED
    bar = _bar(strip.loudness, at, cell)
    silent = killed is not None and until is not None and killed < at < until
    return SILENT if silent and bar == " " else bar


def _bar(loudness: Sequence[float], at: float, cell: float) -> str:
    first, end = (max(0, round(100 * second)) for second in (at, at + cell))
    slots = loudness[first:end]
    level = sum(slots) / len(slots) if slots else 0.0
    if level < _FAINTEST:
        return " "
    return _BARS[min(len(_BARS) - 1, int(math.sqrt(level / _LOUDEST) * len(_BARS)))]
