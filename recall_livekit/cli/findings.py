"""What one check of ``doctor`` found."""

from __future__ import annotations

from typing import Literal

from ..models import Value

__all__ = ["Finding", "Level", "fail", "ok", "warn"]

Level = Literal["ok", "warn", "fail"]


class Finding(Value):
    """How one thing is, and, if it is not as it should be, what to do."""

    level: Level
    what: str
    says: str
    remedy: str = ""


def ok(what: str, says: str) -> Finding:
    """Return that all is well."""
    return Finding(level="ok", what=what, says=says)


def warn(what: str, says: str, remedy: str) -> Finding:
    """Return that it works, but not as one would want."""
    return Finding(level="warn", what=what, says=says, remedy=remedy)


def fail(what: str, says: str, remedy: str) -> Finding:
    """Return that it does not work."""
    return Finding(level="fail", what=what, says=says, remedy=remedy)
