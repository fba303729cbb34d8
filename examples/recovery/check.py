"""Was anything lost? What the workers were told is durable, held against what is in the records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recall_livekit import Recall, Turn
from recall_livekit.engine.entries import Entry, RecordsEntry
from recall_livekit.models import WorkingStateUpdate
from recall_livekit.stores.base import Store

__all__ = ["Verdict", "arrived", "compare", "entries_from", "judge", "judge_said"]

MOST_ENTRIES = 10_000

Told = dict[str, Any]
"""A record as a worker told it: its kind, and its id and text, or the changes it made."""


@dataclass(slots=True)
class Verdict:
    """How many records were acknowledged and found again, and what is wrong with them."""

    acknowledged: int
    found: int
    faults: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return 1 if self.faults else 0


async def judge(store: Store, call_id: str, acknowledged: Sequence[Told]) -> Verdict:
    """Read the call, and compare. The records are given in the order of their acknowledgements.

    Turns are read as any application may. Of the working state an application sees only the
    newest version, so its updates are looked for in the entries themselves.
    """
    async with Recall(store) as recall:
        turns = await recall.turns(call_id)
        return compare(acknowledged, turns, batches(await entries_from(recall, call_id, 0)))


async def judge_said(
    recall: Recall, call_id: str, said: Sequence[Told], acknowledged: Sequence[Told]
) -> Verdict:
    """Read the call through `recall`, and compare with all that was said, not more and not less.

    What nobody was told is durable is a fault too, even if it is there.
    """
    turns = await recall.turns(call_id)
    known = {record["id"] for record in acknowledged}
    durable = [record for record in said if record["id"] in known]
    verdict = compare(durable, turns, batches(await entries_from(recall, call_id, 0)))
    verdict.faults += [*_never_acknowledged(said, known), *_never_said(said, turns)]
    return verdict


async def entries_from(recall: Recall, call_id: str, position: int) -> Sequence[Entry]:
    """Return the entries of the call's chain from `position` on."""
    return await recall.entries(call_id, position, MOST_ENTRIES)


def batches(entries: Iterable[Entry]) -> list[RecordsEntry]:
    """Return the entries that hold records."""
    return [entry for entry in entries if isinstance(entry, RecordsEntry)]


def arrived(entries: Iterable[Entry], said: Sequence[Told]) -> tuple[int, list[str]]:
    """Return how many records these entries hold, and what is wrong with the turns among them:
    they should be those of `said`, each once and in its order, and then at most newer ones."""
    records = [record for batch in batches(entries) for record in batch.records]
    there = [record.message_id for record in records if isinstance(record, Turn)]
    wanted = [record["id"] for record in said if record["kind"] == "turn"]
    faults = [] if there[: len(wanted)] == wanted else ["what had waited did not arrive as said"]
    if len(set(there)) < len(there):
        faults.append("doubled: a turn that had waited arrived twice")
    return len(records), faults


def compare(
    acknowledged: Sequence[Told], turns: Sequence[Turn], batches: Sequence[RecordsEntry]
) -> Verdict:
    """Hold what was acknowledged against what is there."""
    told = [record for record in acknowledged if record["kind"] == "turn"]
    noted = [record["changes"] for record in acknowledged if record["kind"] == "note"]
    records = [record for batch in batches for record in batch.records]
    updates = [record.changes for record in records if isinstance(record, WorkingStateUpdate)]
    kept = _kept_notes(noted, updates)
    faults = [*_lost(told, turns), *_disorder(told, turns), *_misnumbered(batches)]
    if kept < len(noted):
        faults.append(f"lost: update {kept + 1} of the working state was acknowledged")
    there = {turn.message_id for turn in turns}
    found = sum(record["id"] in there for record in told) + kept
    return Verdict(len(acknowledged), found, faults)


def _lost(told: Sequence[Told], turns: Sequence[Turn]) -> Iterable[str]:
    there = {turn.message_id: (turn.role, turn.content) for turn in turns}
    for record in told:
        if record["id"] not in there:
            yield f"lost: {record['text']!r} was acknowledged and is not in the records"
        elif there[record["id"]] != (record["role"], record["text"]):
            yield f"changed: {record['text']!r} is recorded as {there[record['id']][1]!r}"


def _never_acknowledged(said: Sequence[Told], known: Collection[str]) -> Iterable[str]:
    for record in said:
        if record["id"] not in known:
            yield f"never acknowledged: {record.get('text') or 'an update of the working state'!r}"


def _never_said(said: Sequence[Told], turns: Sequence[Turn]) -> Iterable[str]:
    known = {record["id"] for record in said}
    for turn in turns:
        if turn.message_id not in known:
            yield f"doubled, or nobody said it: {turn.content!r}"


def _disorder(told: Sequence[Told], turns: Sequence[Turn]) -> Iterable[str]:
    acknowledged, there = [record["id"] for record in told], [turn.message_id for turn in turns]
    if len(set(there)) < len(there):
        yield "doubled: a turn is in the records twice"
    common = set(acknowledged) & set(there)
    if [i for i in there if i in common] != [i for i in acknowledged if i in common]:
        yield "out of order: not in the order in which they were acknowledged"
    if [turn.seq for turn in turns] != list(range(1, len(turns) + 1)):
        yield "out of order: the turns are not numbered 1, 2, 3 ..."


def _misnumbered(batches: Sequence[RecordsEntry]) -> Iterable[str]:
    """Each writer numbers its records 1, 2, 3 ..., so a number seen twice is doubled."""
    last: dict[str, int] = {}
    for batch in batches:
        if batch.first != last.get(batch.writer, 0) + 1:
            yield f"doubled or out of order: record {batch.first} of one writer"
        last[batch.writer] = batch.last


def _kept_notes(noted: Sequence[dict[str, Any]], updates: Sequence[dict[str, Any]]) -> int:
    """Return how many of the updates are there, counted in order up to the first that is not."""
    rest = iter(updates)
    for kept, changes in enumerate(noted):
        given = {name: value for name, value in changes.items() if value is not None}
        if given not in rest:
            return kept
    return len(noted)
