"""Other ends: a second crash before the lease, a freeze inside a commit, a torn log."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nursery import run
from .report import say


@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=pytest.mark.long)])
def test_the_second_worker_dies_before_its_lease(tmp_path: Path, rounds: int) -> None:
    """What it had written provisionally counts once, after the first worker's last."""
    summary = run("second_crash", tmp_path, rounds, rounds, seconds=100)
    say("killed before its lease", summary)
    assert summary["provisional"] >= rounds


@pytest.mark.parametrize(
    ("boundary", "end"), [(1, "kill"), (5, "wake"), pytest.param(2, "wake", marks=pytest.mark.long)]
)
def test_a_worker_frozen_inside_a_commit(tmp_path: Path, boundary: int, end: str) -> None:
    """Other calls go on; its own can be read, and is taken as soon as the frozen one is gone."""
    summary = run("frozen_commit", tmp_path, boundary, end, seconds=60)
    say(f"frozen inside a commit, then {end}", summary)
    assert summary["worst_ms"] < 3000


@pytest.mark.parametrize(
    ("seed", "cuts", "size"),
    [
        (1, 50, 20),
        pytest.param(2, 300, 20, marks=pytest.mark.long),
        pytest.param(3, 300, 700, marks=pytest.mark.long),
    ],
)
def test_a_log_torn_by_power_loss(tmp_path: Path, seed: int, cuts: int, size: int) -> None:
    """What was synced below the tear is there, without a gap, and the call goes on."""
    summary = run("torn", tmp_path, seed, cuts, size, seconds=100)
    say("torn log", summary)
    assert summary["torn"] == cuts


@pytest.mark.parametrize(
    ("seed", "cuts"),
    [(2, 10), *[pytest.param(seed, 30, marks=pytest.mark.long) for seed in (3, 6)]],
)
def test_a_log_torn_after_it_was_begun_anew(tmp_path: Path, seed: int, cuts: int) -> None:
    """What an earlier generation held is in the file by then (3: killed while it is copied)."""
    summary = run("torn", tmp_path, seed, cuts, 30_000, seconds=100)
    say("torn log of a second generation", summary)
    assert summary["torn"] == cuts
