"""What the command's exit tells a script."""

from __future__ import annotations

from ..errors import InvalidInput, RecallError, RoomsUnavailable, StoreUnavailable

__all__ = [
    "CLOSED_PIPE",
    "DONE",
    "FAILED",
    "INTERRUPTED",
    "UNREACHABLE",
    "USAGE",
    "Failed",
    "code_of",
]

DONE = 0
FAILED = 1
"""It was not done, or what was asked for does not exist."""
USAGE = 2
"""What was asked makes no sense: an option, an address or a call id."""
UNREACHABLE = 3
"""The store or the server did not answer: try again."""
INTERRUPTED = 130
CLOSED_PIPE = 141
"""Whoever read the output went away, as in ``| head``."""


class Failed(Exception):
    """A command ends here: with this text, which says what to do, and this code."""

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code


def code_of(error: RecallError) -> int:
    """Return the exit code that the error ends with."""
    match error:
        case StoreUnavailable() | RoomsUnavailable():
            return UNREACHABLE
        case InvalidInput():
            return USAGE
    return FAILED
