"""An agent is killed around a charge: the caller pays once, and nobody is told "done" who cannot
know it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nursery import run
from .report import say


@pytest.mark.parametrize("kills", [16, pytest.param(200, marks=pytest.mark.long)])
def test_killed_around_a_charge(quick_path: Path, kills: int) -> None:
    """Before its beginning is stored, between that and the tool, in it, and after it."""
    summary = run("charges", quick_path, 7, kills, seconds=60 + 5 * kills)
    say("killed around a charge", summary)
    seen = {what for what in summary if ", " in what}
    assert seen == {
        "not begun, not charged",
        "unknown, not charged",
        "unknown, charged",
        "done, charged",
    }
    assert sum(summary[what] for what in seen) == kills
