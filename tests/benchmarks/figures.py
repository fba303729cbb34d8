"""Plain statistics, and seconds as milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

MS = 1000.0


def median_ms(seconds: Sequence[float]) -> float:
    return MS * median(seconds)


def p99_ms(seconds: Sequence[float]) -> float:
    """The smallest figure that 99 of 100 do not exceed."""
    return MS * sorted(seconds)[max(0, math.ceil(0.99 * len(seconds)) - 1)]


def median_extra_ms(ours: Sequence[float], alone: Sequence[float]) -> float:
    """The median of what the first of each pair took longer: what drifts, drifts for both."""
    return MS * median(a - b for a, b in zip(ours, alone, strict=True))
