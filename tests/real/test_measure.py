"""The benchmarks of a real livekit-server still run. How long things take is not looked at."""

from __future__ import annotations

import math

import pytest

from ..benchmarks import real_livekit
from ..benchmarks.registry import Scale, benchmarks
from . import measure
from .cutting import Cut
from .measure import Cost, House, Way
from .recital import WORDS


def test_a_gap_is_measured() -> None:
    [gap] = measure.measure_gaps("livekit", ["job_kill"], 1)["job_kill"]
    assert -500 < gap < 5000


def test_a_standby_is_weighed() -> None:
    waits, rests = measure.measure_standby("joined", 0.5)
    assert waits.memory > 1
    assert rests.memory > 1
    assert 0 <= rests.cpu < 200


def test_words_are_counted() -> None:
    [cut] = measure.measure_cuts(1, seed=25)
    assert cut.before[0] == WORDS[0]
    assert cut.after[-1] == WORDS[-1]


@pytest.mark.parametrize(
    ("before", "known", "after", "found"),
    [
        (5, 5, 5, (0, 0, 0)),
        (5, 3, 3, (2, 0, 0)),
        (4, 5, 5, (0, 1, 1)),
        (0, 0, 0, (0, 0, 0)),
    ],
)
def test_words_heard_twice_and_never_are_told_apart(
    before: int, known: int, after: int, found: tuple[int, int, int]
) -> None:
    cut = Cut(1.0, WORDS[:before], WORDS[:known], WORDS[after:])
    assert tuple(map(len, (cut.doubled, cut.skipped, cut.unheard))) == found


def test_every_row_that_is_named_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def gaps(house: House, ways: list[Way], rounds: int) -> dict[Way, list[float]]:
        return {way: [300.0] * rounds for way in ways}

    monkeypatch.setattr(real_livekit, "measure_gaps", gaps)
    monkeypatch.setattr(real_livekit, "measure_silence", lambda bound: 1000 * bound)
    cut = Cut(1.0, WORDS[:4], WORDS[:3], WORDS[3:])
    monkeypatch.setattr(real_livekit, "measure_cuts", lambda count, seed: [cut] * count)
    monkeypatch.setattr(real_livekit, "measure_standby", lambda *_: (Cost(2, 20), Cost(1, 10)))
    mine = [one for one in benchmarks() if one.measure.__module__ == real_livekit.__name__]
    assert len(mine) == 3
    for one in mine:
        rows = list(one.measure(Scale()))
        assert [row.name for row in rows] == list(one.names)
        assert all(math.isfinite(row.value) and row.floor > 0 for row in rows)
