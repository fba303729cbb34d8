"""Texts, records, entries and what workers do with them, as they may come and as they must not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from recall_livekit.engine.entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    StubEntry,
    UnknownEntry,
)
from recall_livekit.models import (
    Action,
    Dropped,
    Handoff,
    Output,
    Pointer,
    Record,
    Turn,
    Unreadable,
    Userdata,
    Value,
    WorkingStateUpdate,
)

from .scenes import MARK, Erases, Fault, Leaves, Newer, Opens, Says, Step, Takes, Waits, Whispers

T = TypeVar("T")
V = TypeVar("V", bound=Value)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/" + MARK), max_size=30)
MARKED = TEXT.map(lambda text: f"{MARK} {text}")
"""A text that will tell which call, run, writer and number it was said under."""
SPEECH = st.lists(
    st.sampled_from(
        (
            "I'd like to move my appointment to next Thursday, if that still works for you.",
            "Natürlich, Frau Müller-Lüdenscheidt: Wie lautet Ihre Kundennummer?",
            "¿Podría repetirme la dirección de envío, por favor? Es la calle Núñez de Balboa.",
            "Sipariş numaranız 4471-82 olarak görünüyor, doğru mu?",
            "Здравствуйте, я хотела бы отменить бронирование на субботу.",
            "我想预订明天晚上四个人的桌子，最好靠窗。",
            "予約番号をもう一度お願いします。",
            '{"order": 4471, "email": "anna@example.com", "at": "2026-05-01T19:30:00Z"}',
            "+49 170 1234567",
            "https://example.com/orders/4471?tab=items#last",
        )
    ),
    min_size=1,
    max_size=4,
).map(" ".join)
"""What is really said on the phone: an estimate promises nothing about noise."""
FINITE = st.floats(allow_nan=False, allow_infinity=False)  # no record has a time like that
TIMES = st.floats(0.0, 2e9)
SMALL = st.integers(0, 3)
JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def proving(examples: int) -> settings:
    """Return settings under which nothing depends on luck or on how busy the machine is."""
    return settings(
        deadline=None,
        derandomize=True,
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow],
    )


def as_often_as(times: Mapping[st.SearchStrategy[T], int]) -> st.SearchStrategy[T]:
    """Return one of these, each so many times as often as it says (`one_of` counts none twice)."""
    pool = [one for one, often in times.items() for _ in range(often)]
    return st.sampled_from(pool).flatmap(lambda one: one)


# --- values on the wire: every field filled, by its type --------------------------------------


@cache
def value_of(kind: type[V]) -> st.SearchStrategy[V]:
    """Return values of this kind. A field that is added later is filled too."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: _of(hints[name]) for name in kind.model_fields})


@cache
def _of(hint: Any) -> st.SearchStrategy[Any]:
    plain = {str: TEXT, float: FINITE, JsonValue: JSON}
    if hint in plain:
        return plain[hint]
    if isinstance(hint, type) and issubclass(hint, Value):
        return value_of(hint)
    return _of_several(get_origin(hint), get_args(hint), hint)


def _of_several(origin: Any, args: tuple[Any, ...], hint: Any) -> st.SearchStrategy[Any]:
    if origin in (Union, UnionType):
        return st.one_of([_of(arg) for arg in args])
    if origin is dict:
        return st.dictionaries(_of(args[0]), _of(args[1]), max_size=3)
    if origin is tuple and args[-1] is ...:
        return st.lists(_of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_of, args))
    found: st.SearchStrategy[Any] = st.from_type(hint)
    return found


# --- records and entries that meet each other: few names, and a text for every word -----------


def turns(text: st.SearchStrategy[str]) -> st.SearchStrategy[Turn]:
    return st.builds(
        Turn,
        at=TIMES,
        role=st.sampled_from(("user", "assistant", "tool", "system")),
        content=text,
        agent=st.none() | text,
        interrupted=st.booleans(),
    )


def actions(text: st.SearchStrategy[str]) -> st.SearchStrategy[Action]:
    return st.builds(
        Action,
        at=TIMES,
        key=st.sampled_from(("k1", "k2", "k3")),
        tool=text,
        action_class=st.sampled_from(("pure", "idempotent", "external")),
        status=st.sampled_from(("started", "started", "done", "failed", "abandoned", "unknown")),
        arguments=text,
    )


def pointers(text: st.SearchStrategy[str]) -> st.SearchStrategy[Pointer]:
    return st.builds(
        Pointer,
        at=TIMES,
        name=st.sampled_from(("p1", "p2", "p3")),
        type=st.sampled_from(("git_ref", "object", "env", "external", "process")),
        fields=st.fixed_dictionaries({"where": text}),
    )


def updates(text: st.SearchStrategy[str]) -> st.SearchStrategy[WorkingStateUpdate]:
    lines = dict.fromkeys(("goal", "progress", "focus", "notes", "last_milestone"), text)
    lists = dict.fromkeys(("plan", "decisions", "open_questions"), st.lists(text, max_size=3))
    changes = st.fixed_dictionaries({}, optional={**lines, **lists})
    return st.builds(WorkingStateUpdate, at=TIMES, changes=changes)


def records(text: st.SearchStrategy[str]) -> st.SearchStrategy[Record]:
    """Return records of every known kind."""
    userdata = st.builds(Userdata, at=TIMES, data=st.fixed_dictionaries({"order": text}))
    handoffs = st.builds(Handoff, at=TIMES, agent=text, previous=st.none() | text)
    outputs = st.builds(Output, at=TIMES, ref=st.just("1/0"), name=text, chars=SMALL, preview=text)
    dropped = st.builds(Dropped, at=TIMES, of=st.just("userdata"), reason=text)
    return as_often_as(
        {
            turns(text): 5,
            updates(text): 1,
            userdata: 1,
            actions(text): 2,
            pointers(text): 1,
            handoffs: 1,
            outputs: 1,
            dropped: 1,
        }
    )


RECORDS = records(MARKED)
SPOKEN = records(SPEECH)
NEWER_RECORDS = st.builds(Unreadable, kind=st.just("hologram"), v=st.just(2), at=TIMES)
ANY_RECORDS: st.SearchStrategy[Record] = as_often_as({RECORDS: 12, NEWER_RECORDS: 1})

_NAMES = st.sampled_from(("w0", "w1", "w2"))
_OUTCOMES = st.sampled_from(("handover", "left", "ended"))
_COMMON: dict[str, st.SearchStrategy[Any]] = {"epoch": SMALL, "at": TIMES}
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    st.builds(
        RecordsEntry,
        **_COMMON,
        writer=_NAMES,
        first=SMALL,
        records=st.lists(ANY_RECORDS, max_size=3).map(tuple),
        provisional_run=st.none() | SMALL,
    ),
    st.builds(RunEntry, **_COMMON, writer=_NAMES, run=SMALL, room_sid=st.none() | TEXT),
    st.builds(LeaseEntry, **_COMMON, writer=_NAMES, attempt=TEXT, run=SMALL, ttl=TIMES),
    st.builds(ReleaseEntry, **_COMMON, writer=_NAMES, outcome=_OUTCOMES),
    st.builds(EraseEntry, **_COMMON),
    st.builds(
        StubEntry,
        **_COMMON,
        was=st.sampled_from(("records", "run", "lease", "release", "erase", "unknown")),
        writer=st.none() | _NAMES,
        first=SMALL,
        count=SMALL,
        run=st.none() | SMALL,
        sid_hash=st.none() | TEXT,
    ),
    st.builds(UnknownEntry, **_COMMON, kind=st.just("hologram"), v=st.just(2)),
)
WILD_CHAINS = st.lists(ENTRIES, max_size=14)
"""Chains that no engine would write: a reader must get through them all the same."""

# --- what workers do ----------------------------------------------------------------------------

_WHO = st.sampled_from((0, 0, 1, 2))
_FAULTS = st.sampled_from(
    [
        *[Fault()] * 8,
        *(Fault(shift=by) for by in (-2, -1, 1)),
        *(Fault(epoch_back=by) for by in (1, 1, 2)),
        Fault(run_back=1),
    ]
)
_SAID = st.lists(ANY_RECORDS, min_size=1, max_size=3).map(tuple)
_SAYS = st.builds(Says, who=_WHO, records=_SAID, provisional=st.booleans(), fault=_FAULTS)
MURMURS = st.builds(
    Says,
    who=st.sampled_from((1, 2)),
    records=_SAID,
    provisional=st.just(True),
    fault=st.sampled_from((Fault(), Fault(), Fault(run_back=1), Fault(epoch_back=1))),
)
"""What is said without the lease: it waits while another has it, or comes late."""
_TAKES = st.builds(
    Takes, who=_WHO, another_room=st.sampled_from((False, False, False, False, True))
)
STEPS: st.SearchStrategy[Step] = as_often_as(
    {
        _SAYS: 14,
        MURMURS: 7,
        _TAKES: 6,
        st.builds(Opens, who=_WHO, another_room=st.booleans()): 1,
        st.builds(Leaves, who=_WHO, outcome=_OUTCOMES): 1,
        st.builds(Whispers, who=_WHO, role=st.sampled_from(("user", "assistant")), text=MARKED): 3,
        st.builds(Waits, seconds=st.sampled_from((1.0, 7.0, 130.0, 1000.0))): 1,
        st.builds(Newer, epoch_up=st.sampled_from((0, -1, 1))): 1,
        st.builds(Erases): 1,
    }
)
STORIES: st.SearchStrategy[list[Step]] = st.lists(st.lists(STEPS, max_size=10), max_size=8).map(
    lambda chapters: [Takes(who=0), *(step for steps in chapters for step in steps)]
)
"""What several workers do with one call, allowed or not. In chapters: one list stays too short."""


def _in_one_run(story: list[Step]) -> list[Step]:
    kept = [step for step in story if not isinstance(step, Erases | Waits)]
    return [
        replace(step, another_room=False)
        if isinstance(step, Takes | Opens)
        else replace(step, outcome="handover")
        if isinstance(step, Leaves)
        else step
        for step in kept
    ]


ONE_RUN = STORIES.map(_in_one_run)
