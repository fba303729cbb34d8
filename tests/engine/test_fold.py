"""The fold: what a chain says, entry by entry."""

from __future__ import annotations

from recall_livekit.engine.entries import (
    Entry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    UnknownEntry,
    load_entry,
)
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import Folded
from recall_livekit.models import (
    Action,
    ActionClass,
    ActionStatus,
    Dropped,
    Record,
    Turn,
    working_state_update,
)


def fold(*entries: Entry, retained_chars: int = 10_000) -> Fold:
    folded = Fold(retained_chars)
    for position, entry in enumerate(entries):
        folded.apply(entry, f"id{position}")
    return folded


def run(number: int = 1, writer: str = "w1") -> RunEntry:
    return RunEntry(epoch=0, at=1.0, writer=writer, run=number, room_sid=f"RM_{number}")


def lease(epoch: int, writer: str, number: int = 1) -> LeaseEntry:
    return LeaseEntry(epoch=epoch, at=1.0, writer=writer, attempt=f"a{epoch}", run=number, ttl=6.0)


def records(writer: str, first: int, epoch: int, *what: Record, run: int | None = None) -> Entry:
    return RecordsEntry(
        epoch=epoch, at=1.0, writer=writer, first=first, records=what, provisional_run=run
    )


def turn(text: str, at: float = 1.0) -> Turn:
    return Turn(at=at, role="user", content=text)


def action(key: str, status: ActionStatus) -> Action:
    return Action(at=1.0, key=key, tool="charge", status=status)


def said(folded: Fold) -> list[str]:
    return [one.content for one in folded.turns]


def test_a_waiting_entry_counts_at_the_next_lease() -> None:
    base = (run(), lease(1, "w1"), records("w2", 1, 1, turn("b"), run=1))
    waiting = fold(*base)
    assert said(waiting) == []
    assert said(waiting.with_waiting()) == ["b"]
    assert waiting.last_number("w2") == 1
    assert said(fold(*base, records("w1", 1, 1, turn("a")), lease(2, "w3"))) == ["a", "b"]


def test_a_waiting_entry_counts_at_the_release() -> None:
    release = ReleaseEntry(epoch=1, at=2.0, writer="w1", outcome="handover")
    folded = fold(run(), lease(1, "w1"), records("w2", 1, 1, turn("b"), run=1), release)
    assert said(folded) == ["b"]
    assert folded.waiting == []


def test_a_provisional_entry_counts_at_its_place_when_nobody_else_can_write() -> None:
    assert said(fold(run(), records("w1", 1, 0, turn("a"), run=1))) == ["a"]
    own = fold(run(), lease(1, "w1"), records("w1", 1, 1, turn("a"), run=1))
    assert said(own) == ["a"]


def test_a_holders_own_late_sent_records_still_change_its_state() -> None:
    update = working_state_update(1.0, {"goal": "book a table"})
    folded = fold(run(), lease(1, "w1"), lease(2, "w1"), records("w1", 1, 1, update, run=1))
    assert folded.working_state is not None
    assert folded.working_state.goal == "book a table"


def test_a_fenced_writers_late_records_change_no_state() -> None:
    update = working_state_update(1.0, {"goal": "old"})
    folded = fold(
        run(), lease(1, "w1"), lease(2, "w2"), records("w1", 1, 1, turn("x"), update, run=1)
    )
    assert said(folded) == ["x"]
    assert folded.working_state is None


def test_a_new_run_begins_with_nothing_and_old_records_do_not_enter_it() -> None:
    folded = fold(
        run(),
        lease(1, "w1"),
        records("w1", 1, 1, turn("yesterday")),
        run(2, "w2"),
        lease(2, "w2", 2),
        records("w1", 2, 1, turn("late, of yesterday"), run=1),
        records("w2", 1, 2, turn("today")),
    )
    assert said(folded) == ["today"]
    assert folded.turns[0].seq == 3, "the call's turns are one gapless sequence over its runs"


def test_working_state_versions_merge_field_by_field() -> None:
    folded = fold(
        run(),
        lease(1, "w1"),
        records("w1", 1, 1, working_state_update(1.0, {"goal": "g", "plan": ["a", "b"]})),
        records("w1", 2, 1, working_state_update(2.0, {"plan": [], "progress": "half"})),
    )
    state = folded.working_state
    assert state is not None
    assert (state.goal, state.plan, state.progress, state.version) == ("g", (), "half", 2)


def test_an_action_is_open_until_it_is_told_how_it_went() -> None:
    base = (run(), lease(1, "w1"), records("w1", 1, 1, action("k", "started")))
    assert set(fold(*base).actions) == {"k"}
    assert fold(*base, records("w1", 2, 1, action("k", "done"))).actions == {}
    assert set(fold(*base, records("w1", 2, 1, action("k", "unknown"))).actions) == {"k"}


def test_at_a_takeover_open_actions_take_the_state_of_their_class() -> None:
    kinds: tuple[ActionClass, ...] = ("pure", "idempotent", "external")
    begun = [Action(at=1.0, key=kind, tool="t", action_class=kind) for kind in kinds]
    base = (run(), lease(1, "w1"), records("w1", 1, 1, *begun))
    assert {a.status for a in fold(*base, lease(2, "w1")).actions.values()} == {"started"}
    taken = fold(*base, lease(2, "w2")).actions
    assert {key: one.status for key, one in taken.items()} == {
        "idempotent": "started",
        "external": "unknown",
    }
    told = records("w1", 4, 1, action("external", "done"), run=1)
    assert set(fold(*base, lease(2, "w2"), told).actions) == {"idempotent"}, "it came in late"


def test_only_the_newest_turns_are_kept_and_all_are_counted() -> None:
    many = [records("w1", n, 1, turn("x" * 100)) for n in range(1, 101)]
    folded = fold(run(), lease(1, "w1"), *many, retained_chars=1500)
    assert len(folded.turns) == 10
    assert folded.run_turns == 100
    assert folded.turns[-1].seq == 100


def test_a_dropped_record_keeps_its_number_and_is_counted() -> None:
    folded = fold(
        run(), lease(1, "w1"), records("w1", 1, 1, Dropped(at=1.0, of="userdata", reason="full"))
    )
    assert folded.last_number("w1") == 1
    assert folded.dropped == {"userdata": 1}


def test_a_newer_record_is_skipped_counted_and_keeps_its_number() -> None:
    entry = load_entry(
        b'{"v":1,"kind":"records","epoch":1,"at":1,"writer":"w1","first":1,"records":['
        b'{"v":9,"kind":"turn","at":1,"shape":"new"},'
        b'{"v":1,"kind":"hologram","at":1},'
        b'{"v":1,"kind":"turn","at":1,"role":"user","content":"known","later":"field"}]}'
    )
    folded = fold(run(), lease(1, "w1"), entry)
    assert folded.unreadable == 2
    assert said(folded) == ["known"]
    assert folded.last_number("w1") == 3


def test_a_newer_entry_still_fences() -> None:
    entry = load_entry(b'{"v":2,"kind":"lease","epoch":7,"at":1,"crew":["a","b"]}')
    assert isinstance(entry, UnknownEntry)
    folded = fold(run(), lease(1, "w1"), entry)
    assert folded.epoch == 7
    assert not folded.holds("w1", 1)


def test_a_fold_goes_through_its_value_unchanged() -> None:
    folded = fold(
        run(),
        lease(1, "w1"),
        records("w1", 1, 1, turn("a"), action("k", "started")),
        records("w2", 1, 1, turn("b"), run=1),
    )
    loaded = Folded.model_validate_json(folded.value().model_dump_json())
    assert Fold(10_000, loaded).value() == folded.value()
