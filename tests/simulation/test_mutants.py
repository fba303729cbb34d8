"""Each rule of the chain is broken on purpose, and the simulation says so."""

from __future__ import annotations

import pytest

from . import mutants, spool_mutants
from .mutant import MUTANTS
from .simulation import simulate
from .tally import TALLY, Caught

LISTS = (mutants, spool_mutants)
"""What fills `MUTANTS`."""
SEEDS = range(1000, 1040)
"""The CI budget of one mutant."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.patch(monkeypatch)
    steps = 0
    for tried, seed in enumerate(SEEDS, 1):
        outcome = simulate(seed, mutant.odds)
        steps += outcome.steps
        if outcome.fault is not None:
            check, what = outcome.fault
            monkeypatch.undo()
            assert simulate(seed, mutant.odds).fault is None, "not the mutant's doing"
            TALLY.caught.append(Caught(name, check, what, seed, tried, steps))
            return
    pytest.fail(f"{name} (rule {mutant.rule}) survived {steps} steps of {len(SEEDS)} seeds")
