"""What can be measured: its names, and the function that measures them in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, TypeAlias

TOPICS = (
    "on_enter",
    "realtime",
    "neighbours",
    "turns",
    "takeover",
    "frozen_store",
    "fifty_calls",
    "event_loop",
    "memory",
    "over_http",
    "real_livekit",
)
"""The modules of this package that measure something, in the order of the table."""

Unit = Literal["ms", "per s", "MB", "%", "words"]


class Skipped(Exception):
    """It cannot be measured on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done: everything, or as little as shows that a benchmark still runs."""

    tiny: bool = False

    def of(self, full: int, tiny: int) -> int:
        return tiny if self.tiny else full


@dataclass(frozen=True, slots=True)
class Row:
    """One figure; `floor` is the same work without us, in the same unit and the same run."""

    name: str
    value: float
    unit: Unit
    floor: float
    target: str = ""

    @property
    def ratio(self) -> float:
        return self.value / self.floor


Measure: TypeAlias = Callable[[Scale], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Benchmark:
    names: tuple[str, ...]
    measure: Measure


_found: list[Benchmark] = []


def benchmark(*names: str) -> Callable[[Measure], Measure]:
    """Registers a function that measures these names together."""

    def register(measure: Measure) -> Measure:
        _found.append(Benchmark(names, measure))
        return measure

    return register


def benchmarks(wanted: Sequence[str] = ()) -> list[Benchmark]:
    """Those that measure one of the wanted names, else all. Raises LookupError for others."""
    for topic in TOPICS:
        import_module(f".{topic}", __package__)
    known = {name for one in _found for name in one.names}
    if unknown := set(wanted) - known:
        raise LookupError(f"no benchmark {', '.join(sorted(unknown))}; there are: {sorted(known)}")
    return [one for one in _found if not wanted or set(wanted) & set(one.names)]
