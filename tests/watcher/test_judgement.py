"""What is to be done about a room, for everything that can be seen of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recall_livekit.engine.liveness import Liveness
from recall_livekit.rooms.orders import Pulse
from recall_livekit.watcher.judgement import Act, Claim, Seen, judge, standing_of
from recall_livekit.watcher.settings import WatcherSettings

SETTINGS = WatcherSettings()
CLAIMS: tuple[Claim, ...] = ("none", "served", "goes_on")
ALONE = Seen(claim="goes_on", called=True)


def act(seen: Seen, **changes: Any) -> Act:
    return judge(replace(seen, **changes), SETTINGS).act


def everything() -> Iterator[Seen]:
    """Every combination of what counts."""
    some: dict[str, tuple[Any, ...]] = {
        "claim": CLAIMS,
        "called": (False, True),
        "liveness": tuple(Liveness),
        "doubtful": (False, True),
        "speaking": ((), ("a",)),
        "silent": ((), ("b",)),
        "silences": (0, 1, 2),
        "settling": (0.0, 1.0),
        "waiting": (False, True),
        "lacks_standby": (False, True),
        "alone_for": (0.0, 5.0),
        "free_for": (0.0, 5.0),
    }
    for values in itertools.product(*some.values()):
        seen = Seen(**dict(zip(some, values, strict=True)))
        if seen.silent or not (seen.silences or seen.settling):
            yield seen


def test_whatever_is_seen_no_harm_is_done() -> None:
    for seen in everything():
        decision = judge(seen, SETTINGS)
        acts = decision.act in (Act.REPLACE, Act.DISPATCH, Act.STANDBY)
        assert seen.claim != "none" or decision.act is Act.NOTHING, seen
        assert not acts or (seen.claim != "none" and seen.called), seen
        if seen.speaking:  # never a second speaking agent beside a live one
            assert decision.act not in (Act.REPLACE, Act.DISPATCH, Act.ASK_AGAIN), seen
        if decision.act is Act.DISPATCH:
            assert not seen.silent, seen
            assert seen.liveness in (Liveness.FREE, Liveness.DEAD), seen
            assert not seen.waiting or seen.free_for >= SETTINGS.standby_wait, seen
        if decision.act is Act.REPLACE and seen.silent:
            assert seen.silences > (seen.liveness in (Liveness.LIVE, Liveness.FREE)) or (
                seen.doubtful and seen.silences
            ), seen
        immediate = (Act.REPLACE, Act.DISPATCH, Act.ASK_AGAIN)
        assert decision.act in immediate or decision.seconds > 0, seen


def test_whatever_is_seen_a_caller_without_an_agent_is_not_forgotten() -> None:
    """Once all that may be waited for is over, something is done."""
    for seen in everything():
        late = replace(seen, alone_for=99.0, free_for=99.0, settling=0.0)
        late = replace(late, silences=2 if late.silent else 0)
        if late.claim != "none" and late.called and not late.speaking:
            assert judge(late, SETTINGS).act in (Act.REPLACE, Act.DISPATCH), late


def test_a_room_that_is_not_ours_is_not_touched() -> None:
    assert act(ALONE, claim="none") is Act.NOTHING


def test_nobody_is_dispatched_where_nobody_calls() -> None:
    assert act(ALONE, called=False) is Act.CALL_OFF


@pytest.mark.parametrize("liveness", Liveness)
def test_an_agent_that_lives_keeps_its_call_whatever_the_records_say(liveness: Liveness) -> None:
    seen = replace(ALONE, liveness=liveness, doubtful=True, speaking=("a",), alone_for=99)
    assert act(seen) is Act.NOTHING
    assert act(seen, silent=("b",), silences=9) is Act.NOTHING


def test_a_call_that_is_free_gets_an_agent_at_once() -> None:
    assert act(ALONE) is Act.DISPATCH
    assert act(ALONE, liveness=Liveness.DEAD) is Act.DISPATCH


def test_a_silent_holder_is_asked_twice() -> None:
    seen = replace(ALONE, liveness=Liveness.LIVE, silent=("a",))
    assert act(seen, silences=1) is Act.ASK_AGAIN
    assert act(seen, silences=2) is Act.REPLACE


@pytest.mark.parametrize("liveness", [Liveness.DEAD, Liveness.BROKEN, Liveness.LAPSED])
def test_one_silence_is_enough_if_the_records_lost_the_holder_too(liveness: Liveness) -> None:
    assert act(ALONE, liveness=liveness, silent=("a",), silences=1) is Act.REPLACE


def test_one_silence_is_enough_if_a_sign_says_so_too() -> None:
    seen = replace(ALONE, liveness=Liveness.LIVE, silent=("a",), silences=1)
    assert act(seen, doubtful=True) is Act.REPLACE


def test_an_agent_on_its_way_in_is_waited_for() -> None:
    seen = replace(ALONE, silent=("a",), silences=2)
    assert judge(replace(seen, settling=0.4), SETTINGS).seconds == 0.4
    assert act(seen, settling=0.4) is Act.WAIT
    assert act(seen) is Act.REPLACE


def test_a_holder_that_is_not_in_the_room_is_waited_for_and_then_broken() -> None:
    seen = replace(ALONE, liveness=Liveness.LIVE)
    decision = judge(replace(seen, alone_for=0.5), SETTINGS)
    assert (decision.act, decision.seconds) == (Act.WAIT, 1.5)
    assert act(seen, alone_for=2) is Act.REPLACE
    assert act(seen, liveness=Liveness.LAPSED) is Act.REPLACE


def test_a_standby_has_its_time() -> None:
    seen = replace(ALONE, waiting=True)
    decision = judge(replace(seen, free_for=0.25), SETTINGS)
    assert (decision.act, decision.seconds) == (Act.WAIT, 0.25)
    decision = judge(replace(seen, free_for=0.9), SETTINGS)
    assert (decision.act, round(decision.seconds, 9)) == (Act.WAIT, 0.1)
    assert act(seen, free_for=1) is Act.DISPATCH


def test_livekits_own_dispatch_has_its_time() -> None:
    seen = replace(ALONE, claim="served")
    decision = judge(replace(seen, alone_for=0.5), SETTINGS)
    assert (decision.act, decision.seconds) == (Act.WAIT, 1.5)
    assert act(seen, alone_for=2) is Act.DISPATCH


def test_a_standby_is_for_who_has_an_agent() -> None:
    assert act(ALONE, lacks_standby=True) is Act.DISPATCH
    assert act(ALONE, speaking=("a",), lacks_standby=True) is Act.STANDBY


@pytest.mark.parametrize(
    ("pulse", "standing"),
    [
        (None, "silent"),
        (Pulse(state=""), "speaks"),
        (Pulse(state="reading"), "speaks"),
        (Pulse(state="acquiring"), "speaks"),
        (Pulse(state="holding"), "speaks"),
        (Pulse(state="standby"), "waits"),
        (Pulse(state="read_only"), "waits"),
        (Pulse(state="acquiring", standby="joined"), "waits"),
        (Pulse(state="closed"), "idle"),
    ],
)
def test_what_an_agent_is_by_its_answer(pulse: Pulse | None, standing: str) -> None:
    assert standing_of(pulse) == standing
