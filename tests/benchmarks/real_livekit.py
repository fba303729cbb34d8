"""The silence that a caller hears on a real livekit-server when the agent is lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median

from recall_livekit.rooms.orders import StandbyKind
from recall_livekit.testing.livekit_server import find_livekit_server
from tests.real.measure import (
    House,
    Way,
    measure_cuts,
    measure_gaps,
    measure_silence,
    measure_standby,
)

from .registry import Row, Scale, Skipped, benchmark

WORST = "_worst"
KINDS: tuple[StandbyKind, ...] = ("following", "joined")


@dataclass(frozen=True, slots=True)
class Gap:
    """One way to lose an agent, and the silence that may follow: at the median, and at worst."""

    name: str
    house: House
    way: Way
    target: float
    worst: float | None = None

    def rows(self, gaps: list[float], floors: list[float]) -> Iterable[Row]:
        most = "" if self.worst is None else f"< {self.worst:.0f} ms"
        yield Row(self.name, median(gaps), "ms", median(floors), f"< {self.target:.0f} ms")
        yield Row(self.name + WORST, max(gaps), "ms", max(floors), most)


GAPS = (
    Gap("livekit_gap_job_kill", "recall", "job_kill", 1000, 2000),
    Gap("livekit_gap_worker_kill", "recall", "worker_kill", 1000, 2000),
    Gap("livekit_gap_freeze", "recall", "freeze", 2500),
    Gap("livekit_gap_sigterm", "recall", "sigterm", 300),
    Gap("livekit_gap_standby_job_kill", "following", "job_kill", 200),
    Gap("livekit_gap_standby_worker_kill", "following", "worker_kill", 200),
    Gap("livekit_gap_standby_sigterm", "following", "sigterm", 300),
    Gap("livekit_gap_joined_job_kill", "joined", "job_kill", 200),
    Gap("livekit_gap_joined_worker_kill", "joined", "worker_kill", 200),
    Gap("livekit_gap_joined_sigterm", "joined", "sigterm", 300),
    Gap("livekit_gap_http_job_kill", "http", "job_kill", 1300),
    Gap("livekit_gap_http_standby_job_kill", "http_following", "job_kill", 600),
)

HOUSES: dict[House, list[Way]] = {"livekit": ["job_kill"]}
for gap in GAPS:
    HOUSES.setdefault(gap.house, []).append(gap.way)


@benchmark("livekit_gap_alone", *(name for gap in GAPS for name in (gap.name, gap.name + WORST)))
def livekit_gaps(scale: Scale) -> Iterable[Row]:
    """The floor is LiveKit alone, killed and dispatched again at once by whoever measures."""
    _need_server()
    gaps: dict[tuple[House, Way], list[float]] = defaultdict(list)
    for _ in range(scale.of(2, 1)):  # in two halves: what drifts, drifts for all
        for house, ways in HOUSES.items():
            rounds = scale.of(6, 1)  # an even number: every second worker dies with all its jobs
            for way, found in measure_gaps(house, ways, rounds).items():
                gaps[house, way] += found
    floors = gaps["livekit", "job_kill"]
    silence = measure_silence(scale.of(5, 1))
    yield Row("livekit_gap_alone", silence, "ms", median(floors), "nobody comes: measured so long")
    for gap in GAPS:
        yield from gap.rows(gaps[gap.house, gap.way], floors)


@benchmark(*(f"standby_{what}_{kind}" for kind in KINDS for what in ("cpu", "memory")))
def standby_cost(scale: Scale) -> Iterable[Row]:
    """The floor is a warm process that waits for a job."""
    _need_server()
    for kind in KINDS:
        waits, rests = measure_standby(kind, scale.of(20, 1))
        yield Row(f"standby_cpu_{kind}", waits.cpu, "%", max(rests.cpu, 0.01))
        yield Row(f"standby_memory_{kind}", waits.memory, "MB", rests.memory)


@benchmark("livekit_words_doubled", "livekit_words_skipped")
def livekit_words(scale: Scale) -> Iterable[Row]:
    """Words a kill, of 200 ms each. The floor is the one under way, of which half was heard."""
    _need_server()
    cuts = measure_cuts(scale.of(20, 1), seed=20)
    doubled = [len(one.doubled) for one in cuts]
    skipped = [len(one.skipped) for one in cuts]
    yield Row("livekit_words_doubled", mean(doubled), "words", 1, f"< 2, at worst {max(doubled)}")
    yield Row("livekit_words_skipped", mean(skipped), "words", 1, f"< 1, at worst {max(skipped)}")


def _need_server() -> None:
    if find_livekit_server() is None:
        raise Skipped("no livekit-server: `make bench` builds one where Go is at hand")
