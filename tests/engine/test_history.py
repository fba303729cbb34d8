"""The history of a chain: all that the fold decided, and nothing that was erased."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recall_livekit.engine.entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    UnknownEntry,
    load_entry,
)
from recall_livekit.engine.history import HistoryFold, history
from recall_livekit.engine.noted import History
from recall_livekit.models import (
    Action,
    ActionClass,
    ActionStatus,
    Dropped,
    Outcome,
    Record,
    Turn,
    Userdata,
    working_state_update,
)

from ..properties.scenes import Erases, Step, fold, marks, play, stored, written
from ..properties.strategies import STORIES, WILD_CHAINS, proving


def run(number: int = 1, at: float = 1.0) -> RunEntry:
    return RunEntry(epoch=0, at=at, writer="w1", run=number, room_sid=f"RM_{number}")


def lease(epoch: int, writer: str, number: int = 1, at: float = 1.0) -> LeaseEntry:
    return LeaseEntry(epoch=epoch, at=at, writer=writer, attempt=f"a{epoch}", run=number, ttl=6.0)


def release(epoch: int, writer: str, outcome: Outcome, at: float = 9.0) -> ReleaseEntry:
    return ReleaseEntry(epoch=epoch, at=at, writer=writer, outcome=outcome)


def records(writer: str, first: int, epoch: int, *what: Record, run: int | None = None) -> Entry:
    return RecordsEntry(
        epoch=epoch, at=1.0, writer=writer, first=first, records=what, provisional_run=run
    )


def turn(text: str, at: float = 1.0) -> Turn:
    return Turn(at=at, role="user", content=text)


def goal(text: str) -> Record:
    return working_state_update(2.0, {"goal": text})


def action(key: str, status: ActionStatus, kind: ActionClass = "external") -> Action:
    return Action(at=1.0, key=key, tool="charge", status=status, action_class=kind)


def turns(told: History, number: int | None = None) -> list[tuple[int, str, str]]:
    one = told.run(number)
    assert one is not None
    return [(noted.turn.seq, noted.turn.content, noted.standing) for noted in one.turns]


# --- leases -------------------------------------------------------------------------------------


def test_every_lease_tells_who_how_long_and_how_it_ended() -> None:
    told = history(
        [
            run(),
            lease(1, "w1", at=10.0),
            lease(2, "w1", at=20.0),
            lease(3, "w2", at=30.0),
            release(3, "w2", "left", at=40.0),
            lease(4, "w3", at=50.0),
            run(2, at=60.0),
            lease(5, "w4", 2, at=70.0),
        ]
    )
    ends = [(one.epoch, one.writer, one.end, one.ended_at) for one in told.leases]
    assert ends == [
        (1, "w1", "taken_again", 20.0),
        (2, "w1", "taken_over", 30.0),
        (3, "w2", "left", 40.0),
        (4, "w3", "followed", 60.0),
        (5, "w4", None, None),
    ]
    assert told.leases[1].ended_by == "w2"
    assert told.lease == told.leases[-1]


def test_an_entry_newer_than_this_version_ends_the_lease() -> None:
    told = history([run(), lease(1, "w1"), UnknownEntry(kind="hologram", v=9, epoch=2, at=5.0)])
    assert told.lease is None
    assert told.leases[0].end == "unknown"
    assert (told.epoch, told.unreadable) == (2, 1)


def test_a_run_goes_on_once_its_lease_is_taken_again() -> None:
    left: list[Entry] = [run(), lease(1, "w1"), release(1, "w1", "left")]
    assert [one.outcome for one in history(left).runs] == ["left"]
    assert [one.outcome for one in history([*left, lease(2, "w2")]).runs] == [None]


# --- records ------------------------------------------------------------------------------------


def test_each_turn_tells_how_it_counts() -> None:
    waiting = [
        run(),
        records("w1", 1, 0, turn("early"), run=1),
        lease(1, "w1"),
        records("w2", 1, 1, turn("unheard"), run=1),
        records("w1", 2, 1, turn("held")),
    ]
    assert turns(history(waiting)) == [
        (1, "early", "provisional"),
        (2, "held", "held"),
        (3, "unheard", "waiting"),
    ]
    late = [*waiting, lease(2, "w2"), records("w1", 3, 1, turn("too late"), run=1)]
    assert turns(history(late))[2:] == [(3, "unheard", "provisional"), (4, "too late", "late")]


def test_asking_for_the_history_changes_nothing() -> None:
    folded = HistoryFold()
    for entry in (run(), lease(1, "w1"), records("w2", 1, 1, turn("b"), goal("g"), run=1)):
        folded.note(entry)
    assert folded.history() == folded.history()
    folded.note(lease(2, "w2"))
    assert turns(folded.history()) == [(1, "b", "provisional")]


def test_late_words_belong_to_the_run_that_they_name() -> None:
    told = history([run(), run(2), records("w1", 1, 0, turn("old"), goal("old"), run=1)])
    assert turns(told, 1) == [(1, "old", "late")]
    assert turns(told) == []
    first = told.run(1)
    assert first is not None
    assert first.states[0].state is None


def test_a_late_update_changes_no_later_version() -> None:
    chain = [run(), lease(1, "w1"), lease(2, "w2"), records("w1", 1, 1, goal("late"), run=1)]
    held = records("w2", 1, 2, working_state_update(3.0, {"focus": "date"}))
    told = history([*chain, held]).run()
    assert told is not None
    versions = [(noted.standing, noted.state and noted.state.goal) for noted in told.states]
    assert versions == [("late", None), ("held", None)]


def test_every_version_of_the_state_stays_readable() -> None:
    updates = (goal("a"), working_state_update(3.0, {"focus": "date"}), goal("b"))
    told = history([run(), lease(1, "w1"), records("w1", 1, 1, *updates)]).run()
    assert told is not None
    versions = [noted.state for noted in told.states if noted.state]
    assert [(v.version, v.goal, v.focus) for v in versions] == [
        (1, "a", None),
        (2, "a", "date"),
        (3, "b", "date"),
    ]
    assert told.states[1].changes == {"focus": "date"}


def test_userdata_and_dropped_records_are_told() -> None:
    dropped = Dropped(at=1.0, of="turn", reason="too large")
    data = (Userdata(at=1.0, data={"n": 1}), Userdata(at=2.0, data={"n": 2}))
    told = history([run(), lease(1, "w1"), records("w1", 1, 1, *data, dropped, dropped)]).run()
    assert told is not None
    assert [noted.data for noted in told.userdata] == [{"n": 1}, {"n": 2}]
    assert told.dropped == {"turn": 2}


def test_an_action_keeps_its_place_and_its_last_status() -> None:
    begun = [action("a", "started"), action("b", "started", "pure"), action("c", "started")]
    done = Action(at=5.0, key="c", tool="charge", status="done", result="42")
    chain = [run(), lease(1, "w1"), records("w1", 1, 1, *begun, done)]
    told = history([*chain, lease(2, "w2")]).run()
    assert told is not None
    assert [(one.action.key, one.action.status, one.ended_at) for one in told.actions] == [
        ("a", "unknown", None),
        ("b", "abandoned", None),
        ("c", "done", 5.0),
    ]
    assert [one.number for one in told.actions] == [1, 2, 3]


# --- as it stood --------------------------------------------------------------------------------

CHAIN: list[Entry] = [
    run(),
    lease(1, "w1", at=2.0),
    records("w1", 1, 1, turn("one")),
    records("w1", 2, 1, turn("two")),
    release(1, "w1", "ended"),
]


def test_until_tells_what_was_known_then() -> None:
    for position in range(len(CHAIN)):
        assert history(CHAIN, until=position) == history(CHAIN[: position + 1])


def test_until_does_not_look_behind_an_erasure() -> None:
    told = history([*CHAIN, EraseEntry(epoch=2, at=9.0)], until=3)
    assert "one" not in told.model_dump_json()
    assert [one.outcome for one in told.runs] == ["erased"]
    assert told.position == 4


# --- every chain --------------------------------------------------------------------------------


@proving(60)
@given(STORIES)
def test_it_tells_what_readers_are_given(story: list[Step]) -> None:
    chain = written(story)
    shown, told = fold(chain).with_waiting(), history(map(load_entry, chain))
    one = told.run()
    assert (told.position, told.epoch) == (shown.position, shown.epoch)
    assert (told.lease.writer if told.lease else None) == (
        shown.lease.writer if shown.lease else None
    )
    if one is None or shown.run is None:
        assert (one, shown.run) == (None, None)
        return
    assert [noted.turn for noted in one.turns] == list(shown.turns)
    states = [noted.state for noted in one.states if noted.state is not None]
    assert (states[-1] if states else None) == shown.working_state
    data = [noted.data for noted in one.userdata if noted.standing != "late"]
    assert (data[-1] if data else None) == shown.userdata
    pointers = {n.pointer.name: n.pointer for n in one.pointers if n.standing != "late"}
    assert pointers == shown.pointers
    open_ones = {n.action.key: n.action for n in one.actions if n.ended_at is None}
    settled = {key: one for key, one in open_ones.items() if one.status != "abandoned"}
    assert settled == shown.actions
    assert (one.said_at, one.outcome) == (shown.run.said_at, shown.run.outcome)


@proving(100)
@given(WILD_CHAINS, st.none() | st.integers(0, 14))
def test_no_chain_that_can_be_read_is_too_wild(wild: list[Entry], until: int | None) -> None:
    told = history(map(load_entry, stored(wild)), until)
    assert told.position == min(len(wild), len(wild) if until is None else until + 1)
    assert History.model_validate_json(told.model_dump_json()) == told


ERASED = st.tuples(STORIES, STORIES).map(lambda parts: [*parts[0], Erases(), *parts[1]])


@proving(60)
@given(ERASED, st.integers(0))
def test_stubs_tell_what_the_chain_told(story: list[Step], half_done: int) -> None:
    """And no word of before: wherever an erasure was interrupted."""
    book = play({"anna": story}).book
    whole, stubs = book.appended["anna"], book.left["anna"]
    mixed = [
        (a, b)[half_done >> at & 1] for at, (a, b) in enumerate(zip(whole, stubs, strict=True))
    ]
    erased = set(marks(b" ".join(whole[: fold(whole).erases[-1]])))
    told = history(map(load_entry, whole))
    for chain in (whole, stubs, mixed):
        assert not erased & set(marks(history(map(load_entry, chain)).model_dump_json()))
    assert history(map(load_entry, stubs)) == told == history(map(load_entry, mixed))
