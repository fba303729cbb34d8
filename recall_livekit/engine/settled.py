"""A briefing after open tool calls were settled: what the next fold of the chain will say too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..models import Action, Briefing
from .briefing import ACTIONS, action_line, with_turns
from .fold import SHOWN_CHARS

__all__ = ["settled"]


def settled(briefing: Briefing, ended: Mapping[str, Action], own: Iterable[str]) -> Briefing:
    """Return the briefing with the open calls that `ended`, by their keys, among the finished
    ones, and without those of its reader's `own`, which died with nobody. The same value if there
    is none of either."""
    gone = {*ended, *own}
    left = tuple(action for action in briefing.actions if action.key not in gone)
    if len(left) == len(briefing.actions):
        return briefing
    began = [action for action in briefing.actions if action.key in ended]
    found = [_finished(action, ended[action.key]) for action in began]
    finished = tuple(sorted((*briefing.finished, *found), key=lambda action: action.at))
    notes = _without(briefing.notes, [a for a in briefing.actions if a.key in gone])
    missing = {output.ref for output in briefing.outputs if output.missing}
    return briefing.model_copy(
        update={
            "actions": left,
            "finished": finished,
            "notes": notes,
            "text": with_turns(notes, briefing.turns, finished, missing),
        }
    )


def _finished(began: Action, end: Action) -> Action:
    result = None if end.result is None else end.result[:SHOWN_CHARS]
    return began.model_copy(update={"status": end.status, "result": result})


def _without(notes: str, actions: Iterable[Action]) -> str:
    for action in actions:
        notes = notes.replace(f"\n{action_line(action)}", "", 1)
    title = f"\n\n{ACTIONS}"
    return notes if f"{title}\n- " in notes else notes.replace(title, "", 1)
