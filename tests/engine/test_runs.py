"""Which call is this?"""

from __future__ import annotations

import pytest

from recall_livekit.engine.entries import Entry, RecordsEntry, ReleaseEntry, RunEntry
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.runs import Origin, continues
from recall_livekit.models import Outcome, Turn
from recall_livekit.settings import Settings

from .test_fold import lease

NOW = 10_000.0
SETTINGS = Settings()


def call(
    *, said_at: float = NOW - 10, outcome: Outcome | None = None, outcome_at: float = NOW - 5
) -> Fold:
    fold = Fold(10_000)
    entries: list[Entry] = [
        RunEntry(epoch=0, at=said_at, writer="w", run=1, room_sid="RM_1", caller="anna"),
        lease(1, "w").model_copy(update={"at": said_at}),
        RecordsEntry(
            epoch=1,
            at=NOW,
            writer="w",
            first=1,
            records=(Turn(at=said_at, role="user", content="hi"),),
        ),
    ]
    for entry in entries:
        fold.apply(entry, "id")
    if outcome:
        fold.apply(ReleaseEntry(epoch=1, at=outcome_at, writer="w", outcome=outcome), "id")
    return fold


def same(fold: Fold, sid: str | None = "RM_1", caller: str | None = "anna") -> bool:
    return continues(fold, Origin(room_sid=sid, caller=caller, at=NOW), settings=SETTINGS)


def test_the_same_room_goes_on() -> None:
    assert same(call())
    assert same(call(outcome="handover"))


def test_nothing_goes_on_after_the_end() -> None:
    assert not same(call(outcome="ended"))


def test_the_same_room_much_later_is_another_call() -> None:
    assert not same(call(said_at=NOW - SETTINGS.resume_window - 1))


def test_age_counts_from_when_it_was_said_not_from_when_it_was_delivered() -> None:
    old = call(said_at=NOW - SETTINGS.resume_window - 1)
    assert old.run is not None
    assert not same(old), "its entry was written at NOW"


def test_a_caller_on_hold_is_kept_by_renewals() -> None:
    old = call(said_at=NOW - SETTINGS.resume_window - 1)
    origin = Origin(room_sid="RM_1", at=NOW)
    assert continues(old, origin, settings=SETTINGS, renewed_at=NOW - 3)


@pytest.mark.parametrize(
    ("caller", "ago", "goes_on"),
    [("anna", 60, True), ("anna", 130, False), ("bob", 60, False), (None, 60, False)],
)
def test_another_room_goes_on_for_the_same_caller_within_the_window(
    caller: str | None, ago: float, goes_on: bool
) -> None:
    assert same(call(said_at=NOW - ago), "RM_2", caller) is goes_on


@pytest.mark.parametrize(("ago", "goes_on"), [(60, True), (130, False)])
def test_who_left_may_come_back_for_a_while(ago: float, goes_on: bool) -> None:
    left = call(said_at=NOW - ago, outcome="left", outcome_at=NOW - ago)
    assert same(left) is goes_on


def test_the_application_may_decide_itself() -> None:
    seen: list[tuple[Origin, Origin]] = []

    def same_call(previous: Origin, current: Origin) -> bool:
        seen.append((previous, current))
        return True

    origin = Origin(room_sid="RM_2", caller="bob", at=NOW)
    assert continues(call(), origin, settings=SETTINGS, same_call=same_call)
    [(previous, current)] = seen
    assert (previous.room_sid, previous.caller) == ("RM_1", "anna")
    assert (current.room_sid, current.caller, current.at) == ("RM_2", "bob", NOW)


def test_a_call_id_without_a_room_goes_on_however_old() -> None:
    assert same(call(said_at=NOW - 10 * SETTINGS.resume_window), sid=None)


def test_a_call_that_nobody_began_does_not_go_on() -> None:
    assert not same(Fold(10_000))
