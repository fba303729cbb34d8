"""Whatever a power cut or a bad disk makes of a file: what is read is what was written, or less."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recall_livekit.models import Record, Turn, Userdata
from recall_livekit.spool.format import (
    Facts,
    Header,
    NotASpool,
    facts_line,
    header_line,
    read_contents,
    read_record,
    record_line,
)

HEADER = Header(tag="here", call_id="é call\n", writer="w", room_sid="RM_1", caller="+49 …")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
RECORDS: st.SearchStrategy[list[Record]] = st.lists(
    st.one_of(
        st.builds(Turn, at=st.floats(1, 2e9), role=st.just("user"), content=TEXT),
        st.builds(Userdata, at=st.floats(1, 2e9), data=st.dictionaries(TEXT, TEXT, max_size=3)),
    ),
    max_size=12,
)
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def written(records: list[Record], facts: Facts) -> bytes:
    lines = [record_line(number, record) for number, record in enumerate(records, 1)]
    lines.insert(len(lines) // 2, facts_line(facts))
    return b"".join([header_line(HEADER), *lines])


def read(data: bytes) -> dict[int, Record]:
    return {number: read_record(raw) for number, raw in read_contents(data).records.items()}


@FEW
@given(RECORDS, st.integers(0, 9))
def test_what_is_written_is_read(records: list[Record], epoch: int) -> None:
    facts = Facts(run=1, epoch=epoch, holding=True)
    data = written(records, facts)
    contents = read_contents(data)
    assert (contents.header, contents.facts) == (HEADER, facts)
    assert read(data) == dict(enumerate(records, 1))
    assert (contents.size, contents.damaged) == (len(data), 0)


@FEW
@given(RECORDS, st.data())
def test_a_cut_anywhere_leaves_the_lines_before_it(
    records: list[Record], data: st.DataObject
) -> None:
    whole = written(records, Facts())
    cut = data.draw(st.integers(0, len(whole)))
    try:
        contents = read_contents(whole[:cut])
    except NotASpool:
        assert cut < len(header_line(HEADER))
        return
    assert whole[: contents.size].endswith(b"\n")
    assert cut - contents.size < max(map(len, whole.splitlines(keepends=True)))
    left = read(whole[:cut])
    assert list(left) == list(range(1, len(left) + 1))
    assert all(records[number - 1] == record for number, record in left.items())
    assert contents.damaged == 0


@FEW
@given(RECORDS.filter(bool), st.data())
def test_no_damage_makes_another_record(records: list[Record], data: st.DataObject) -> None:
    whole = bytearray(written(records, Facts()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with suppress(NotASpool):
        for number, record in read(bytes(whole)).items():
            assert record == records[number - 1]


@FEW
@given(st.binary(max_size=300))
def test_junk_is_no_spool(junk: bytes) -> None:
    with suppress(NotASpool):
        assert read_contents(junk) is None
