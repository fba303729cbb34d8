"""A worker is killed at every boundary of a write: of a request, and of a step on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nursery import run
from .report import say

ERASED = ("again", "newcomer", "same_room")
"""Who comes after an eraser that was killed: it is erased again, another room opens the call
id, or the erased room's next worker comes."""


def test_at_every_request_of_a_call(quick_path: Path) -> None:
    summary = run("sweep", "call", "-", "requests", 1, quick_path, seconds=100)
    say("killed at every request of a call", summary)
    assert summary["kills"] == summary["boundaries"] > 70
    assert 0 < summary["snapshots"] < summary["kills"], "with and without a snapshot"


@pytest.mark.parametrize("story", ["erase", "finish"])
@pytest.mark.parametrize("heir", ["again", "newcomer", "same_room"])
def test_at_every_request_of_an_erasure(quick_path: Path, story: str, heir: str) -> None:
    """Begun or finished by another: whoever comes next leaves no byte of it."""
    summary = run("sweep", story, heir, "requests", 1, quick_path, seconds=100)
    say(f"killed at every request of {story}, then {heir}", summary)
    assert summary["kills"] == summary["boundaries"] > 24


def test_inside_the_commits_of_a_call(quick_path: Path) -> None:
    """Before, in the middle of and after a write to a file, and around each sync and link."""
    summary = run("sweep", "call", "-", "disk", 5, quick_path, seconds=100)
    say("killed inside a call's commits", summary)
    assert summary["kills"] > 50


def test_inside_the_commits_of_an_erasure(quick_path: Path) -> None:
    summary = run("sweep", "erase", "again", "disk", 23, quick_path, seconds=100)
    say("killed inside an erasure's commits", summary)
    assert summary["kills"] > 15


@pytest.mark.long
@pytest.mark.parametrize(
    ("story", "heir"),
    [("call", "-"), ("erase", "again"), ("erase", "newcomer"), ("finish", "newcomer")],
)
def test_at_every_step_on_the_disk(quick_path: Path, story: str, heir: str) -> None:
    summary = run("sweep", story, heir, "disk", 1, quick_path, seconds=900)
    say(f"killed at every step on the disk of {story}, then {heir}", summary)
    assert summary["kills"] > 250
