"""The silence that a caller hears on a real livekit-server when the agent's process is killed."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from tests.real.measure import Way, measure_gap
from tests.real.server import find_server

from .registry import Row, Scale, Skipped, benchmark

WAYS: tuple[Way, ...] = ("livekit", "recall", "standby")


@benchmark("real_livekit_gap", "real_livekit_gap_standby")
def real_livekit(scale: Scale) -> Iterable[Row]:
    if find_server() is None:
        raise Skipped("no livekit-server: `make bench` builds one where Go is at hand")
    gaps: dict[Way, list[float]] = {way: [] for way in WAYS}
    for _ in range(2):  # in two halves: what drifts, drifts for all three
        for way in WAYS:
            gaps[way] += measure_gap(way, scale.of(5, 1))
    floor = median(gaps["livekit"])
    yield Row("real_livekit_gap", median(gaps["recall"]), "ms", floor, "< 700 ms")
    yield Row("real_livekit_gap_standby", median(gaps["standby"]), "ms", floor, "< 200 ms")
