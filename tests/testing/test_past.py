"""What is loaded is what was there: every entry and every turn of a call that had it all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_livekit import InvalidInput, Recall
from recall_livekit.cli.export import export
from recall_livekit.engine.entries import EraseEntry, RecordsEntry, dump_entry
from recall_livekit.engine.history import history
from recall_livekit.models import Turn
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.moments import Moment
from recall_livekit.testing.past import load

from ..cli.filled import FORGOTTEN, ODD, TABLE, fill
from .calls import exported

pytestmark = pytest.mark.anyio
FIRST_RUN = 2
"""So many turns has the first of its two runs."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs; in the second a takeover, provisional and late words, and a holder killed."""
    made = tmp_path_factory.mktemp("filled")
    fill(made)
    return made


@pytest.fixture
async def filled(directory: Path) -> AsyncIterator[Recall]:
    async with Recall(SqliteStore(directory)) as recall:
        yield recall


async def turns_at(source: Recall, moment: Moment) -> list[str]:
    past = await load(source, TABLE, moment, silence=1.0, settings=None)
    try:
        return [turn.content for turn in (await past.recall.read(TABLE)).turns]
    finally:
        await past.aclose()


async def test_at_every_entry_it_is_what_show_shows(filled: Recall) -> None:
    entries = await filled.entries(TABLE, 0, 1000)
    for position in range(len(entries)):
        shown = history(entries, until=position).runs[-1]
        expected = [noted.turn.content for noted in shown.turns]
        assert await turns_at(filled, Moment(at_entry=position)) == expected, position


async def test_at_every_turn_the_last_one_written_is_that_turn(filled: Recall) -> None:
    entries = await filled.entries(TABLE, 0, 1000)
    written = [
        record.content
        for entry in entries
        if isinstance(entry, RecordsEntry)
        for record in entry.records
        if isinstance(record, Turn)
    ]
    for number, content in enumerate(written, 1):
        told = await turns_at(filled, Moment(at_turn=number))
        assert content in told
        assert len(told) == (number if number <= FIRST_RUN else number - FIRST_RUN)


async def test_at_its_end_the_words_under_way_are_those_of_the_worker_killed(
    filled: Recall, tmp_path: Path, directory: Path
) -> None:
    file = tmp_path / "table.jsonl"
    await export(f"sqlite:///{directory}", TABLE, file, force=False)
    for source, call_id in ((filled, TABLE), (file, None)):
        past = await load(source, call_id, Moment(), silence=5.0, settings=None)
        reading = await past.recall._transport.read(TABLE)
        assert reading.briefing.agent_words == "There is, just beside the"
        assert reading.briefing.speaker == "agent"
        assert reading.silence == pytest.approx(5.0, abs=3.0)
        assert [one.tool for one in reading.briefing.actions] == ["charge_deposit"]
        await past.aclose()


@pytest.mark.parametrize("odd", ODD)
async def test_odd_names_are_loaded(
    filled: Recall, directory: Path, tmp_path: Path, odd: str
) -> None:
    file = tmp_path / "odd.jsonl"
    await export(f"sqlite:///{directory}", odd, file, force=False)
    past = await load(file, None, Moment(), silence=1.0, settings=None)
    assert past.call_id == odd
    assert [turn.content for turn in await past.recall.turns(odd)] == [f"I am {odd}"]
    await past.aclose()


async def test_an_exported_erased_call_is_told(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "forgotten.jsonl"
    await export(f"sqlite:///{directory}", FORGOTTEN, file, force=False)
    with pytest.raises(InvalidInput, match="it was erased"):
        await load(file, None, Moment(), silence=1.0, settings=None)


def append_an_erasure(file: Path) -> None:
    header, *entries = file.read_text().splitlines()
    entries.append(dump_entry(EraseEntry(epoch=2, at=1.0)).decode())
    header = header.replace(f'"entries":{len(entries) - 1}', f'"entries":{len(entries)}')
    file.write_text("\n".join([header, *entries]))


async def test_what_should_be_erased_is_not_loaded(tmp_path: Path) -> None:
    file = await exported(tmp_path)
    await asyncio.to_thread(append_an_erasure, file)
    with pytest.raises(InvalidInput, match="is being erased: `recall-livekit erase` finishes it"):
        await load(file, None, Moment(), silence=1.0, settings=None)
