"""Thousands of takeovers on bad days. RECALL_SIM_SEED=n runs one seed, and prints its trace."""

from __future__ import annotations

import os
import time

import pytest

from recall_livekit.engine.engine import Engine

from .mutant import LATE_OUTPUTS
from .outputs import put_blindly
from .simulation import Outcome, simulate
from .tally import TALLY

SEED = os.environ.get("RECALL_SIM_SEED")
BATCH = 10
CI_SEEDS = 60
LONG_SEEDS = 2560
"""About 41 takeovers each."""


def run(seed: int) -> Outcome:
    began = time.process_time()
    outcome = simulate(seed)
    TALLY.add(outcome, time.process_time() - began)
    if outcome.fault is not None:
        pytest.fail(outcome.report(), pytrace=False)
    return outcome


def run_batch(first: int) -> None:
    takeovers = sum(run(seed).takeovers for seed in range(first, first + BATCH))
    assert takeovers >= 30 * BATCH, "the days were too quiet to prove anything"


@pytest.mark.skipif(SEED is not None, reason="one seed was asked for")
@pytest.mark.parametrize("first", range(0, CI_SEEDS, BATCH))
def test_takeovers_on_bad_days(first: int) -> None:
    run_batch(first)


@pytest.mark.long
@pytest.mark.skipif(SEED is not None, reason="one seed was asked for")
@pytest.mark.parametrize("first", range(CI_SEEDS, LONG_SEEDS, BATCH))
def test_a_hundred_thousand_takeovers(first: int) -> None:
    run_batch(first)


if SEED is not None:

    def test_the_seed_that_was_asked_for() -> None:
        outcome = run(int(SEED or 0))
        print(outcome.report(len(outcome.trace)))


@pytest.mark.parametrize("seed", range(4))
def test_who_knows_of_no_erasure_finds_the_names_of_its_outputs_taken(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "put_output", put_blindly)
    outcome = simulate(seed, LATE_OUTPUTS)
    assert outcome.fault is None, outcome.report()


@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_has_the_same_trace(seed: int) -> None:
    first, again = simulate(seed), simulate(seed)
    assert first.trace == again.trace
    assert first.steps == again.steps
