"""Every chain: what any reader makes of it, from wherever it begins to read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from recall_livekit.engine.entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    RunEntry,
    UnknownEntry,
    load_entry,
)
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import Folded
from recall_livekit.models import Turn, Unreadable, WorkingStateUpdate

from .scenes import (
    MARK,
    ROOMY,
    Erases,
    Fault,
    Says,
    Scene,
    Step,
    Takes,
    fold,
    marks,
    play,
    stored,
    written,
)
from .strategies import JSON, MURMURS, ONE_RUN, STORIES, WILD_CHAINS, proving

RETAINED = st.sampled_from((1, 150, ROOMY))
THE_END = stored([RunEntry(epoch=0, at=0.0, writer="last", run=999)])
"""What is waiting counts before it."""


def loaded(folded: Folded) -> Folded:
    return Folded.model_validate_json(folded.model_dump_json())


def state(folded: Fold) -> dict[str, Any]:
    """Return all that a fold knows: not by its own `value`, which might leave something out."""
    return {name: what for name, what in vars(folded).items() if name != "content"}


HI = (Turn(at=1.0, role="user", content=MARK),)
NEWER = (Unreadable(kind="hologram", v=2),)
LATE = Fault(run_back=1)


# --- snapshots ----------------------------------------------------------------------------------


def snapshots_tell_the_same(chain: Sequence[bytes], retained: int) -> None:
    whole = fold(chain, retained=retained)
    for position in range(len(chain) + 1):
        snapshot = loaded(fold(chain[:position], retained=retained).value())
        resumed = fold(chain[position:], onto=Fold(retained, snapshot))
        assert state(resumed) == state(whole)
        assert resumed.value().model_dump_json() == whole.value().model_dump_json()


@proving(30)
@given(STORIES, RETAINED)
def test_a_snapshot_and_the_tail_are_the_whole_fold(story: list[Step], retained: int) -> None:
    snapshots_tell_the_same(written(story), retained)


@proving(60)
@given(WILD_CHAINS, RETAINED)
def test_so_they_are_whatever_the_chain(wild: list[Entry], retained: int) -> None:
    snapshots_tell_the_same(stored(wild), retained)


@proving(30)
@given(STORIES)
# Found here: what waited was not counted as unreadable, and a snapshot was written over it.
@example([Takes(0), Says(0, HI), Says(1, NEWER, provisional=True), Says(0, HI)])
def test_no_snapshot_is_written_over_what_is_newer(story: list[Step]) -> None:
    book = play({"anna": story}).book
    for (_, name), cell in book.cells.items():
        if name.startswith("snapshot/") and b"sealed" not in cell.value:
            position = Folded.model_validate_json(cell.value).position
            assert not any(map(is_newer, since_erasure(book.appended["anna"][:position])))


def is_newer(entry: Entry) -> bool:
    if isinstance(entry, RecordsEntry):
        return any(isinstance(record, Unreadable) for record in entry.records)
    return isinstance(entry, UnknownEntry)


def since_erasure(chain: Sequence[bytes]) -> list[Entry]:
    """Return what no erasure of the chain has reached."""
    entries = [load_entry(data) for data in chain]
    erases = [at for at, entry in enumerate(entries) if isinstance(entry, EraseEntry)]
    return entries[erases[-1] + 1 if erases else 0 :]


# --- one fold, always ---------------------------------------------------------------------------


@proving(40)
@given(st.one_of(STORIES.map(written), WILD_CHAINS.map(stored)), RETAINED)
def test_folding_is_pure(chain: list[bytes], retained: int) -> None:
    """Two readers agree, and what one was given does not change under its hands."""
    one, other, given = Fold(retained), Fold(retained), []
    for data in chain:
        value = one.value()
        given.append((value, value.model_dump_json()))
        fold([data], onto=Fold(retained, value))
        one.with_waiting()
        fold([data], onto=one)
        fold([data], onto=other)
    assert state(one) == state(other) == state(one.copy())
    assert [value.model_dump_json() for value, _ in given] == [told for _, told in given]


@proving(60)
@given(WILD_CHAINS, st.dictionaries(st.sampled_from(("goal", "plan", "step", "new")), JSON))
# Found here: a change of a wrong type, which an append accepts, made every later fold raise.
@example([], {"goal": 1})
def test_no_entry_that_can_be_read_ends_a_call(wild: list[Entry], changes: dict[str, Any]) -> None:
    update = WorkingStateUpdate(at=1.0, changes=changes)
    said = RecordsEntry(epoch=1, at=1.0, writer="w", first=1, records=(update,))
    lease = LeaseEntry(epoch=1, at=1.0, writer="w", attempt="a", run=1, ttl=6.0)
    run = RunEntry(epoch=0, at=1.0, writer="w", run=1)
    assert fold(stored([*wild, run, lease, said])).position == len(wild) + 3


@proving(30)
@given(STORIES)
def test_the_epoch_never_goes_down(story: list[Step]) -> None:
    book = play({"anna": story}).book
    for chain in (book.appended["anna"], book.left["anna"]):
        folded = Fold(ROOMY)
        for data in chain:
            before = folded.epoch
            assert fold([data], onto=folded).epoch >= before


# --- once, and in one order ---------------------------------------------------------------------


@proving(30)
@given(STORIES)
def test_a_writers_numbers_are_in_the_chain_once_and_without_a_gap(story: list[Step]) -> None:
    numbers: dict[str, list[int]] = {}
    for entry in map(load_entry, written(story)):
        if isinstance(entry, RecordsEntry):
            numbers.setdefault(entry.writer, []).extend(range(entry.first, entry.last + 1))
    for own in numbers.values():
        assert own == list(range(1, len(own) + 1))


@proving(40)
@given(STORIES)
@example([Takes(0), Takes(0, another_room=True), Says(1, HI, provisional=True, fault=LATE)])
def test_every_turn_counts_once(story: list[Step]) -> None:
    chain = written(story)
    turns = [
        record
        for entry in since_erasure(chain)
        if isinstance(entry, RecordsEntry)
        for record in entry.records
        if isinstance(record, Turn)
    ]
    shown = [mark for turn in fold(chain).with_waiting().turns for mark in marks(turn.content)]
    assert len(set(shown)) == len(shown)
    assert fold(THE_END, onto=fold(chain)).turn_count == len(turns)


@proving(30)
@given(ONE_RUN)
def test_turns_are_one_gapless_sequence(story: list[Step]) -> None:
    folded = fold(written(story)).with_waiting()
    assert [turn.seq for turn in folded.turns] == list(range(1, folded.turn_count + 1))


@proving(40)
@given(STORIES)
def test_so_they_are_over_all_runs(story: list[Step]) -> None:
    """Late words of an earlier run take a place in it too, though nobody is shown them."""
    folded = Fold(ROOMY)
    for data in written(story):
        before, shown = folded.turn_count, [turn.seq for turn in folded.turns]
        seqs = [turn.seq for turn in fold([data], onto=folded).turns]
        assert seqs == [] or seqs[: len(shown)] == shown
        assert seqs == sorted(set(seqs))
        assert set(seqs) - set(shown) <= set(range(before + 1, folded.turn_count + 1))


@proving(25)
@given(STORIES, st.integers(-1, 999))
def test_records_sent_again_change_nothing(story: list[Step], epoch: int) -> None:
    """Rule 4: they are answered as done, whatever has become of the epoch since."""
    scene = play({"anna": story})
    sent = [load_entry(data) for data in scene.book.left["anna"]]

    async def send_again() -> None:
        for entry in sent:
            if isinstance(entry, RecordsEntry):
                await send(scene, entry, epoch)

    before = list(scene.book.left["anna"])
    asyncio.run(send_again())
    assert scene.book.left["anna"] == before


async def send(scene: Scene, entry: RecordsEntry, epoch: int) -> None:
    writer, first, records = entry.writer, entry.first, entry.records
    for engine in (*scene.engines, scene.new_engine()):
        ack = await engine.append("anna", writer, first, records, epoch)
        assert ack.last >= entry.last
        run = entry.provisional_run or 1
        ack = await engine.append_provisional("anna", writer, first, records, run, epoch)
        assert ack.last >= entry.last


# --- erasure ------------------------------------------------------------------------------------

_NOT_IN_STUBS = {"recent", "lease_position"}
"""What a reader of stubs cannot know, and needs for nothing."""


def known_after(folded: Fold, erased_at: int) -> dict[str, Any]:
    """Return what every reader knows once the erasure at that position is in the chain."""
    fields = {name: what for name, what in state(folded).items() if name not in _NOT_IN_STUBS}
    fields["erases"] = folded.erases[-1:]
    fields["writers"] = {
        name: (one.last, one.anchor) if one.anchor < erased_at else one
        for name, one in folded.writers.items()
    }
    return fields


def folds_from(position: int, chain: Sequence[bytes]) -> Iterator[Fold]:
    """Return what a reader of the chain knows at that position and at each one after."""
    folded = fold(chain[:position])
    for data in chain[position:]:
        yield fold([data], onto=folded)


ERASED = st.builds(
    lambda before, last, after: [*before, *last, Erases(), *after],
    STORIES,
    st.lists(MURMURS, max_size=2),
    STORIES,
)


@proving(30)
@given(ERASED, st.integers(0))
def test_stubs_tell_what_the_chain_told(story: list[Step], half_done: int) -> None:
    """Also where some are stubs already and some are not: no bucket replaces all at once."""
    book = play({"anna": story}).book
    whole, stubs = book.appended["anna"], book.left["anna"]
    mixed = [both[half_done >> at & 1] for at, both in enumerate(zip(whole, stubs, strict=True))]
    erased_at = fold(whole).erases[-1]
    readers = (folds_from(erased_at, chain) for chain in (whole, stubs, mixed))
    for told, by_stubs, half in zip(*readers, strict=True):
        assert known_after(by_stubs, erased_at) == known_after(told, erased_at)
        assert known_after(half, erased_at) == known_after(told, erased_at)


@proving(30)
@given(ERASED)
def test_no_word_outlives_its_erasure(story: list[Step]) -> None:
    book = play({"anna": story}).book
    whole, stubs = book.appended["anna"], book.left["anna"]
    erased_at = fold(whole).erases[-1]
    erased = set(marks(b" ".join(whole[:erased_at])))
    assert not erased & set(marks(b" ".join(stubs)))
    beside = marks(b" ".join(cell.value for cell in book.cells.values()))
    assert not [mark for mark in beside if mark.run <= fold(whole).erased_run]
    for chain in (whole, stubs):
        for folded in folds_from(erased_at, chain):
            assert not erased & set(marks(folded.value().model_dump_json()))
