"""Recall's own chains: leases beside the calls that nobody lists, erased with their call."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_livekit import InvalidCallId
from recall_livekit.call_ids import (
    RESERVED,
    WATCHER_CALL_ID,
    check_call_id,
    decode_call_id,
    encode_call_id,
    is_reserved,
    standby_call_id,
)
from recall_livekit.engine.liveness import Liveness

from ..call.test_call import CALL
from ..conftest import OpenRecall, transport_of
from ..files import contains
from ..properties.strategies import proving
from ..properties.test_call_ids import IDS

pytestmark = pytest.mark.anyio
STANDBY = standby_call_id(CALL)


@proving(100)
@given(IDS, IDS)
def test_each_call_has_one_standby_and_no_other_has_it(one: str, other: str) -> None:
    standby = standby_call_id(one)
    assert is_reserved(check_call_id(standby))
    assert decode_call_id(encode_call_id(standby)) == standby
    assert (standby == standby_call_id(other)) is (one == other)
    assert standby not in (one, WATCHER_CALL_ID)
    assert is_reserved(one) is one.startswith(RESERVED)


@given(st.just("") | st.text(min_size=257, max_size=300))
def test_what_is_no_call_id_has_no_standby(text: str) -> None:
    with pytest.raises(InvalidCallId):
        standby_call_id(text)


@pytest.mark.over_http
async def test_they_are_held_and_read_like_calls_and_listed_with_none(
    open_recall: OpenRecall,
) -> None:
    recall = open_recall()
    async with recall.resume(CALL), recall.resume(STANDBY), recall.resume(WATCHER_CALL_ID):
        assert [call async for call in recall.calls()] == [CALL]
        assert [one.call_id async for one in recall.summaries()] == [CALL]
        found = [(await transport_of(recall).read(call)) for call in (STANDBY, WATCHER_CALL_ID)]
        assert [reading.liveness for reading in found] == [Liveness.LIVE] * 2


@pytest.mark.over_http
async def test_a_call_is_erased_with_its_standby(open_recall: OpenRecall, tmp_path: Path) -> None:
    recall = open_recall()
    for call in (CALL, STANDBY, WATCHER_CALL_ID, standby_call_id("another")):
        async with recall.resume(call, room_sid="RM_secret", caller="anna"):
            pass
    await recall.erase(CALL)
    kinds = {call: await _kinds(open_recall, call) for call in (CALL, STANDBY)}
    assert kinds == {CALL: {"stub", "erase"}, STANDBY: {"stub", "erase"}}
    assert "lease" in await _kinds(open_recall, standby_call_id("another"))
    before = len(await recall.entries(STANDBY))
    await recall.erase(CALL)
    assert len(await recall.entries(STANDBY)) == before
    await recall.erase(WATCHER_CALL_ID)
    await recall.erase(standby_call_id("another"))
    await recall.aclose()
    assert not contains(tmp_path / "records", b"RM_secret")


@pytest.mark.over_http
async def test_where_there_was_no_standby_none_is_made(open_recall: OpenRecall) -> None:
    recall = open_recall()
    async with recall.resume(CALL):
        pass
    await recall.erase(CALL)
    assert await recall.entries(STANDBY) == []
    await recall.erase(STANDBY)
    assert await recall.entries(standby_call_id(STANDBY)) == []


async def _kinds(open_recall: OpenRecall, call: str) -> set[str]:
    return {entry.kind for entry in await open_recall().entries(call)}
