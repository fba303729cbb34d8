"""Was anything lost? What the workers were told is durable, held against what is in the records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recall_livekit import Recall, Turn
from recall_livekit.engine.entries import RecordsEntry, load_entry
from recall_livekit.models import WorkingStateUpdate
from recall_livekit.stores.base import Store

__all__ = ["Verdict", "compare", "judge"]

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
        entries = [load_entry(entry) for entry in await store.read(call_id, 0, MOST_ENTRIES)]
    return compare(acknowledged, turns, [e for e in entries if isinstance(e, RecordsEntry)])


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
