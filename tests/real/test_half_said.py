"""Killed in the middle of a sentence: the successor says the rest, as the caller hears it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .cutting import Cut, cut, cutting_stage, moments
from .dialogue import in_order
from .recital import WORDS
from .stage import Stage

pytestmark = pytest.mark.anyio

MOST_TWICE = 6
"""Of 200 ms each. Words are written down every 250 ms; the rest is for a machine that is slow."""
MOST_NEVER = 1
"""The word under way: told at its beginning, heard by half."""
USUALLY_TWICE = 3.0


@pytest.fixture(scope="module")
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with cutting_stage(directory) as stage:
        yield stage


@pytest.mark.parametrize("moment", moments(2, seed=25))
async def test_killed_in_mid_sentence(stage: Stage, moment: float) -> None:
    for one in await cut(stage, moment):
        assert_goes_on(one)


async def test_the_successor_is_killed_in_the_same_sentence(stage: Stage) -> None:
    """Nobody takes what the first one said for all that was said."""
    for one in await cut(stage, 1.6, 2.4):
        assert_goes_on(one)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_killed_in_mid_sentence_20_times(stage: Stage) -> None:
    cuts = [one for moment in moments(20, seed=20) for one in await cut(stage, moment)]
    for one in cuts:
        assert_goes_on(one)
    twice = sum(len(one.doubled) for one in cuts) / len(cuts)
    never = sum(len(one.skipped) for one in cuts) / len(cuts)
    print(f"{twice:.2f} words a kill heard twice, {never:.2f} never")
    assert twice <= USUALLY_TWICE


def assert_goes_on(cut: Cut) -> None:
    """The rest follows right behind what was heard: nothing is begun anew, nothing left out."""
    print(cut)
    rest = WORDS[WORDS.index(cut.after[0]) :]
    assert in_order(cut.after, rest), f"not the rest of the sentence, to its end: {cut.after}"
    assert cut.known == WORDS[: len(cut.known)], "the records have other words than those said"
    assert len(cut.unheard) <= MOST_NEVER, cut.unheard
    assert len(cut.skipped) <= MOST_NEVER, cut.skipped
    assert len(cut.doubled) <= MOST_TWICE, cut.doubled
