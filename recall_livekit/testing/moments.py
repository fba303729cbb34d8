"""Cutting a recorded call at a moment, as if its worker had been killed right there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..engine.entries import Entry, RecordsEntry, ReleaseEntry
from ..errors import InvalidInput
from ..models import Action, Partial, Turn
from .recorded import Recorded

__all__ = ["Moment", "cut_at"]


@dataclass(frozen=True)
class Moment:
    """When the worker died; see `resumed`. Nothing given: after the last entry."""

    at_turn: int | None = None
    at_entry: int | None = None
    during: str | None = None
    cut: str | int | None = None


_Place = tuple[int, int]
"""A position in the chain, and the index of a record in its entry."""


def cut_at(recorded: Recorded, moment: Moment) -> Recorded:
    """Return the call as it was at the moment. What was under way then is a partial.

    Raises:
        InvalidInput: It has no such moment; says which ones it has.
    """
    if moment.at_entry is not None:
        if (moment.at_turn, moment.during, moment.cut) != (None, None, None):
            raise InvalidInput("at_entry says when by itself: give nothing else with it")
        return _after_entry(recorded, moment.at_entry)
    if moment.cut is not None:
        if moment.at_turn is None or moment.during is not None:
            raise InvalidInput("cut= is in the middle of a turn: say which, with at_turn= alone")
        return _within_turn(recorded, moment.at_turn, moment.cut)
    after = None if moment.at_turn is None else _place_of_turn(recorded, moment.at_turn)[0]
    if moment.during is not None:
        after = _place_of_call(recorded, moment.during, after)
    return _at_end(recorded) if after is None else _up_to(recorded, after)


def _at_end(recorded: Recorded) -> Recorded:
    """A worker that is killed releases nothing."""
    entries = list(recorded.entries)
    while entries and isinstance(entries[-1], ReleaseEntry):
        entries.pop()
    return replace(recorded, entries=entries)


def _after_entry(recorded: Recorded, position: int) -> Recorded:
    last = len(recorded.entries) - 1
    if not 0 <= position <= last:
        raise InvalidInput(f"{recorded.named} has entries 0 to {last}, not {position}")
    partials = recorded.partials if position == last else ()
    return replace(recorded, entries=recorded.entries[: position + 1], partials=partials)


def _up_to(recorded: Recorded, place: _Place, *, partials: Sequence[Partial] = ()) -> Recorded:
    """Return the call with this record as the last one of its chain."""
    position, index = place
    entries: list[Entry] = list(recorded.entries[:position])
    entry = recorded.entries[position]
    if isinstance(entry, RecordsEntry) and index >= 0:
        entries.append(entry.model_copy(update={"records": entry.records[: index + 1]}))
    return replace(recorded, entries=entries, partials=partials)


def _within_turn(recorded: Recorded, seq: int, cut: str | int) -> Recorded:
    (position, index), turn = _place_of_turn(recorded, seq)
    if turn.role not in ("user", "assistant"):
        raise InvalidInput(f"turn {seq} is no speech but a {turn.role}'s: it cannot be cut")
    words = _spoken(turn, seq, cut)
    partial = Partial(role=turn.role, text=words, at=turn.at, message_id=turn.message_id)
    return _up_to(recorded, (position, index - 1), partials=(partial,))


def _spoken(turn: Turn, seq: int, cut: str | int) -> str:
    """Return the words of the turn that were said before the cut."""
    whole = turn.content.strip()
    words = whole.split()
    if isinstance(cut, int):
        if not 0 < cut < len(words):
            raise InvalidInput(
                f"turn {seq} has {len(words)} words: it can be cut after 1 to {len(words) - 1}"
            )
        return " ".join(words[:cut])
    said = " ".join(cut.split())
    if not said or not " ".join(words).startswith(said):
        raise InvalidInput(f"turn {seq} does not begin with {cut!r}: it is {whole[:200]!r}")
    return said


def _places(recorded: Recorded) -> Iterator[tuple[_Place, object]]:
    """Yield every record with its place."""
    for position, entry in enumerate(recorded.entries):
        for index, record in enumerate(entry.records if isinstance(entry, RecordsEntry) else ()):
            yield (position, index), record


def _place_of_turn(recorded: Recorded, seq: int) -> tuple[_Place, Turn]:
    turns = [(place, record) for place, record in _places(recorded) if isinstance(record, Turn)]
    if not 1 <= seq <= len(turns):
        has = f"turns 1 to {len(turns)}" if turns else "no turn"
        raise InvalidInput(f"{recorded.named} has {has}, not {seq}")
    return turns[seq - 1]


def _place_of_call(recorded: Recorded, tool: str, after: _Place | None) -> _Place:
    """Return where the tool's last call begins, or its first one after a place."""
    begun = [
        (place, record.tool)
        for place, record in _places(recorded)
        if isinstance(record, Action) and record.status == "started"
        if after is None or place > after
    ]
    found = [place for place, name in begun if name == tool]
    if not found:
        others = ", ".join(sorted({name for _, name in begun})) or "none"
        where = "" if after is None else " after that turn"
        raise InvalidInput(
            f"no call of the tool {tool!r} begins in {recorded.named}{where}; tools that do: "
            f"{others}"
        )
    return found[-1] if after is None else found[0]
