"""What a log that machines gather does not tell of an exception."""

from __future__ import annotations

import traceback
from types import TracebackType

__all__ = ["ExcInfo", "without_text"]

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
"""As `logging` has it."""


def without_text(failed: ExcInfo) -> str:
    """Return where an exception happened and its class, but not its text: it may quote what was
    said or sent."""
    kind, _, where = failed
    frames = "".join(traceback.format_tb(where))
    return f"{frames}{kind.__name__ if kind else ''}"
