"""What the simulations of this session came to, for the end of the test output."""

from __future__ import annotations

from dataclasses import dataclass, field

from .simulation import Outcome

__all__ = ["TALLY", "Caught", "Tally"]


@dataclass(frozen=True, slots=True)
class Caught:
    """How a mutant was found out."""

    mutant: str
    check: str
    what: str
    seed: int
    seeds: int
    steps: int


@dataclass
class Tally:
    """Sums, and the mutants."""

    seeds: int = 0
    takeovers: int = 0
    crashes: int = 0
    entries: int = 0
    steps: int = 0
    cpu: float = 0.0
    caught: list[Caught] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu: float) -> None:
        self.seeds += 1
        self.takeovers += outcome.takeovers
        self.crashes += outcome.crashes
        self.entries += outcome.entries
        self.steps += outcome.steps
        self.cpu += cpu

    def summary(self) -> str:
        return (
            f"{self.seeds} seeds: {self.takeovers} takeovers, {self.crashes} crashes, "
            f"{self.entries} entries, {self.steps} steps in {self.cpu:.1f} s of processor time: "
            f"{self.steps / max(self.cpu, 0.001):,.0f} steps/s"
        )

    def table(self) -> list[str]:
        """Return a line a mutant: caught by which check, after how many steps."""
        rows = [(c.mutant, c.check, f"{c.steps}", f"{c.seeds}", c.what[:60]) for c in self.caught]
        head = ("mutant", "caught by", "steps", "seeds", "what it said")
        wide = [max(len(row[i]) for row in (head, *rows)) for i in range(4)]
        return [
            "  ".join((*(cell.ljust(wide[i]) for i, cell in enumerate(row[:4])), row[4]))
            for row in (head, *rows)
        ]


TALLY = Tally()
