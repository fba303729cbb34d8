"""Every value: it comes back from JSON as it was, whatever a newer writer adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_json, to_jsonable_python

from recall_livekit.engine.entries import (
    Entry,
    EntryBase,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    StubEntry,
    UnknownEntry,
    dump_entry,
    load_entry,
)
from recall_livekit.engine.requests import Ack, Acquire, Grant, Reading
from recall_livekit.engine.runs import Origin
from recall_livekit.models import (
    Action,
    Briefing,
    Dropped,
    Handoff,
    Output,
    Partial,
    Partials,
    Pointer,
    Record,
    RecordBase,
    Renewal,
    Turn,
    Unreadable,
    Userdata,
    Value,
    WorkingState,
    WorkingStateUpdate,
)

from .strategies import FINITE, JSON, TEXT, proving, value_of

RECORDS = (
    Turn,
    WorkingStateUpdate,
    Userdata,
    Pointer,
    Handoff,
    Action,
    Output,
    Dropped,
    Unreadable,
)
ENTRIES = (RecordsEntry, RunEntry, LeaseEntry, ReleaseEntry, EraseEntry, StubEntry, UnknownEntry)
OTHERS = (WorkingState, Partial, Partials, Renewal, Briefing)
REQUESTS = (Origin, Acquire, Reading, Grant, Ack)
KINDS: tuple[type[Value], ...] = (*RECORDS, *ENTRIES, *OTHERS, *REQUESTS)

A_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
KNOWN_RECORDS: st.SearchStrategy[Record] = st.one_of([value_of(kind) for kind in RECORDS[:-1]])
KNOWN_ENTRIES: st.SearchStrategy[Entry] = st.one_of([value_of(kind) for kind in ENTRIES[:-1]])

CLEARED = RecordsEntry(epoch=1, at=1.0, writer="w", first=1, records=(Userdata(at=1.0, data=None),))

# --- as they were -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@proving(20)
@given(data=st.data())
def test_every_value_comes_back_from_json(kind: type[Value], data: st.DataObject) -> None:
    value = data.draw(value_of(kind))
    told = value.model_dump_json()
    back = kind.model_validate_json(told)
    assert back == value
    assert back.model_dump_json() == told


@proving(150)
@given(KNOWN_RECORDS)
def test_every_record_comes_back_as_what_it_was(record: Record) -> None:
    assert A_RECORD.validate_json(record.model_dump_json()) == record


@proving(150)
@given(KNOWN_ENTRIES | value_of(UnknownEntry))
# `dump_entry` leaves out what is None: where that was required, no reader had the batch again.
@example(CLEARED)
def test_every_entry_comes_back_from_its_stored_form(entry: Entry) -> None:
    assert load_entry(dump_entry(entry)) == entry


def test_every_record_and_entry_is_among_them() -> None:
    """Whoever adds a kind adds it here."""
    assert set(RECORDS) == {*RecordBase.__subclasses__(), Unreadable}
    assert set(ENTRIES) == {*EntryBase.__subclasses__(), UnknownEntry}


# --- what a newer writer adds -------------------------------------------------------------------


def adorned(value: Any, more: Mapping[str, JsonValue]) -> Any:
    """Return the JSON of a value in which every value, however deep, has more fields."""
    if isinstance(value, Value):
        return {**{name: adorned(one, more) for name, one in value}, **more}
    if isinstance(value, tuple):
        return [adorned(one, more) for one in value]
    if isinstance(value, dict):
        return {name: adorned(one, more) for name, one in value.items()}
    return value


MORE = st.dictionaries(TEXT.map(lambda name: f"x-{name}"), JSON, min_size=1, max_size=3)


@pytest.mark.parametrize("kind", KINDS)
@proving(20)
@given(data=st.data())
def test_unknown_fields_are_ignored(kind: type[Value], data: st.DataObject) -> None:
    value = data.draw(value_of(kind))
    told = to_json(adorned(value, data.draw(MORE)), inf_nan_mode="constants")
    assert kind.model_validate_json(told) == value


KNOWN = [kind.model_fields["kind"].default for kind in (*RECORDS, *ENTRIES)]
NEWER_VERSION = st.fixed_dictionaries({"v": st.integers(2), "kind": st.sampled_from(KNOWN) | TEXT})
UNKNOWN_KIND = st.fixed_dictionaries({"v": st.just(1), "kind": TEXT.map(lambda kind: f"x-{kind}")})
NEWER = st.builds(
    lambda fields, head, at: {**fields, **at, **head},
    st.dictionaries(TEXT | st.sampled_from(("role", "content", "writer", "records")), JSON),
    NEWER_VERSION | UNKNOWN_KIND,
    st.fixed_dictionaries({}, optional={"at": FINITE}),
)


def told(record: Record | Mapping[str, JsonValue]) -> Any:
    return record if isinstance(record, Mapping) else to_jsonable_python(record)


@proving(100)
@given(st.lists(KNOWN_RECORDS | NEWER, min_size=1, max_size=5))
def test_a_newer_record_is_skipped_and_the_rest_of_its_batch_is_read(batch: list[Any]) -> None:
    loaded = load_batch(batch)
    for record, sent in zip(loaded, batch, strict=True):
        if isinstance(sent, dict):
            assert isinstance(record, Unreadable)
            assert (record.v, record.kind) == (sent["v"], sent["kind"])
        else:
            assert record == sent


def load_batch(batch: list[Any]) -> tuple[Record, ...]:
    entry = {"v": 1, "kind": "records", "epoch": 1, "at": 1.0, "writer": "w", "first": 1}
    records = [told(record) for record in batch]
    loaded = load_entry(to_json({**entry, "records": records}, inf_nan_mode="constants"))
    assert isinstance(loaded, RecordsEntry)
    assert loaded.last == len(batch)
    return loaded.records


@proving(100)
@given(NEWER, st.integers(0))
def test_a_newer_entry_is_known_by_its_kind_and_its_epoch(
    newer: dict[str, JsonValue], epoch: int
) -> None:
    loaded = load_entry(to_json({**newer, "epoch": epoch}, inf_nan_mode="constants"))
    assert isinstance(loaded, UnknownEntry)
    assert (loaded.v, loaded.kind, loaded.epoch) == (newer["v"], newer["kind"], epoch)


@proving(100)
@given(NEWER, JSON)
# Found here: a newer record with another kind of time took its whole batch with it.
@example({"v": 2, "kind": "turn"}, "2026-05-01T19:30:00Z")
def test_a_newer_version_may_tell_the_time_in_its_own_way(
    newer: dict[str, JsonValue], at: JsonValue
) -> None:
    assert load_batch([{**newer, "at": at}])
    assert isinstance(load_entry(to_json({**newer, "epoch": 3, "at": at})), UnknownEntry)
