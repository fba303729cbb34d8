"""One line of figures for each crash test, seen with ``pytest -s`` or ``-rP``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["say"]


def say(what: str, summary: Mapping[str, object]) -> None:
    """Print what was killed and what was kept; a test that comes so far has lost nothing."""
    figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in summary.items())
    print(f"{what}: {figures}, lost 0")
