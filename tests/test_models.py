"""Values on the wire, call ids, and the fixtures of each version that must stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_livekit import InvalidCallId, InvalidRecord
from recall_livekit.call_ids import decode_call_id, encode_call_id
from recall_livekit.engine.entries import RecordsEntry, dump_entry, load_entry
from recall_livekit.models import Turn, Unreadable, Userdata

FIXTURES = Path(__file__).parent / "fixtures"
IDS = st.text(min_size=1, max_size=80).filter(
    lambda text: text.isprintable() or not any("\ud800" <= c <= "\udfff" for c in text)
)


@given(IDS)
def test_a_call_id_goes_through_its_encoded_form(call_id: str) -> None:
    encoded = encode_call_id(call_id)
    assert decode_call_id(encoded) == call_id
    assert all(c.isascii() and (c.isalnum() or c in "-_.~") for c in encoded)
    assert encoded not in (".", "..")


@pytest.mark.parametrize("call_id", ["room", "+49 170 1234567", "a/b c", "..", "😀", "é" * 128])
def test_call_ids_of_every_kind(call_id: str) -> None:
    assert decode_call_id(encode_call_id(call_id)) == call_id


@pytest.mark.parametrize("call_id", ["", "x" * 257, "é" * 129, "\ud800"])
def test_what_is_no_call_id_is_refused(call_id: str) -> None:
    with pytest.raises(InvalidCallId):
        encode_call_id(call_id)


@pytest.mark.parametrize("encoded", ["~", "~!!", "~cm9vbQ", "a b", "..", "~_w"])
def test_what_is_no_encoded_id_is_refused(encoded: str) -> None:
    with pytest.raises(InvalidCallId):
        decode_call_id(encoded)


@given(st.text(max_size=200).filter(str.isprintable), st.integers(1, 10**9))
def test_an_entry_goes_through_its_stored_form(content: str, first: int) -> None:
    turn = Turn(at=1.0, role="user", content=content)
    entry = RecordsEntry(epoch=1, at=1.5, writer="w", first=first, records=(turn,))
    assert load_entry(dump_entry(entry)) == entry


def test_a_null_that_the_application_recorded_stays() -> None:
    record = Userdata(at=1.0, data={"name": None, "list": [None]})
    entry = RecordsEntry(epoch=1, at=1.5, writer="w", first=1, records=(record,))
    assert load_entry(dump_entry(entry)) == entry


@pytest.mark.parametrize("junk", [b"", b"{}x", b"[]", b"\xff\xfe", b'{"kind":"records","v":1}'])
def test_what_is_no_entry_says_so(junk: bytes) -> None:
    with pytest.raises(InvalidRecord):
        load_entry(junk)


def test_version_1_stays_readable() -> None:
    """Written by 0.1.0; no later version may fail here."""
    lines = (FIXTURES / "chain-v1.jsonl").read_bytes().splitlines()
    kinds = [load_entry(line).kind for line in lines]
    assert kinds == ["run", "lease", "records", "records", "release", "erase", "stub"]
    records = load_entry(lines[2])
    assert isinstance(records, RecordsEntry)
    assert [record.kind for record in records.records] == [
        "turn",
        "working_state",
        "userdata",
        "pointer",
        "action",
        "output",
        "dropped",
    ]
    assert not any(isinstance(record, Unreadable) for record in records.records)
