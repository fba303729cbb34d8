"""What makes room when memory is short, and what is never touched for it."""

from __future__ import annotations

import pytest

from recall_livekit import Settings
from recall_livekit.errors import OutboxFull
from recall_livekit.models import Dropped, Record, Turn, Userdata, WorkingStateUpdate
from recall_livekit.outbox import Outbox, Tenure, Unit


def outbox(redacts: bool = False, **settings: int) -> Outbox:
    return Outbox(Settings(**settings), redacts=redacts)


def turn(text: str) -> Turn:
    return Turn(at=1.0, role="user", content=text)


def userdata(step: int) -> Userdata:
    return Userdata(at=1.0, data={"step": step})


def state(**changes: str) -> WorkingStateUpdate:
    return WorkingStateUpdate(at=1.0, changes=dict(changes))


def filled(box: Outbox, *records: Record) -> Outbox:
    for record in records:
        box.add(record)
    return box


def kinds(box: Outbox) -> list[str]:
    return [record.kind for record in box._records]


def test_only_the_newest_userdata_and_working_state_stay() -> None:
    box = filled(
        outbox(),
        *(userdata(1), state(goal="a", focus="x"), turn("1"), state(goal="b")),
        *(userdata(2), state(focus="y"), state(goal="c"), turn("2"), userdata(3)),
    )
    assert box.make_room()
    assert kinds(box) == [
        *("dropped", "dropped", "turn", "dropped"),
        *("dropped", "working_state", "working_state", "turn", "userdata"),
    ]
    assert box.made_room == 4
    assert not box.make_room(), "there is no more to be had"


def test_an_update_stays_while_one_of_its_fields_counts() -> None:
    box = filled(outbox(), state(goal="a", focus="x"), state(goal="b"), turn("1"))
    assert not box.make_room()


def test_a_unit_in_flight_is_not_touched() -> None:
    box = filled(outbox(batch_records=2), userdata(1), userdata(2))
    unit = box.unit()
    filled(box, userdata(3), userdata(4))
    assert box.make_room()
    assert box.unit() is unit
    assert kinds(box) == ["userdata", "userdata", "dropped", "userdata"]
    box.acknowledge(2)
    following = box.unit()
    assert following is not None
    assert [record.kind for record in following.records] == ["dropped", "userdata"]


def test_room_is_made_before_anything_is_refused() -> None:
    box = filled(outbox(outbox_records=3), userdata(1), userdata(2), turn("a"))
    assert box.add(turn("b")) == 4
    with pytest.raises(OutboxFull):
        box.add(turn("c"))
    assert (box.refused, box.made_room, box.last) == (1, 1, 4)


def test_the_bound_in_characters_makes_room_too() -> None:
    box = filled(outbox(outbox_bytes=3000), Userdata(at=1.0, data="x" * 1500), userdata(2))
    box.add(turn("y" * 1500))
    assert kinds(box) == ["dropped", "userdata", "turn"]


def test_its_sizes_add_up_when_all_is_stored() -> None:
    box = filled(outbox(outbox_records=2), userdata(1), userdata(2), turn("a"))
    box.lose(Tenure(1, 1))
    box.acknowledge(box.last)
    assert (box._size, box._markers, box.lag, box.lost, box.replaced) == (0, 0, 0, (), set())


def test_what_is_void_is_forgotten_with_what_is_stored() -> None:
    box = outbox()
    for step in range(1000):
        filled(box, userdata(step))
        box.acknowledge(box.last)
    assert len(box._superseded._void) <= 1


def test_raw_records_are_in_no_unit_and_on_no_disk() -> None:
    box = filled(outbox(redacts=True), turn("4242"), turn("4343"))
    assert box.unit() is None
    assert box.after(0) == []
    raw = box.raw()
    assert raw is not None
    filled(box, turn("4444"))
    box.redacted(raw, [turn("****"), turn("****")])
    unit = box.unit()
    assert unit == Unit(1, (turn("****"), turn("****")))
    assert [number for number, _ in box.after(0)] == [1, 2]
    again = box.raw()
    assert again == Unit(3, (turn("4444"),))


def test_a_marker_is_not_replaced_by_what_was_redacted_meanwhile() -> None:
    box = filled(outbox(redacts=True), userdata(1), userdata(2))
    raw = box.raw()
    assert raw is not None
    box.make_room()
    box.redacted(raw, [userdata(0), userdata(0)])
    first, second = (record for _, record in box.after(0))
    assert isinstance(first, Dropped)
    assert second == userdata(0)


def test_what_was_cleared_meanwhile_stays_so() -> None:
    box = filled(outbox(redacts=True), turn("a"), turn("b"))
    raw = box.raw()
    assert raw is not None
    box.clear()
    filled(box, turn("c"))
    box.redacted(raw, [turn("A"), turn("B")])
    assert box.raw() == Unit(3, (turn("c"),))
    assert box.lag == 1


def test_a_units_last_record_is_the_lost_tenures_last() -> None:
    box = filled(outbox(), turn("a"), turn("b"))
    box.lose(Tenure(run=1, epoch=3))
    filled(box, turn("c"))
    unit = box.unit()
    assert unit is not None
    assert (unit.first, unit.last) == (1, 2)
    assert box.lost == ((2, Tenure(1, 3)),)
