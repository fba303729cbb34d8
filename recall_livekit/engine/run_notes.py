"""One run of a history while it is folded: what was noted of it so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..models import (
    Action,
    ActionStatus,
    Dropped,
    Handoff,
    Output,
    Pointer,
    Record,
    Turn,
    Userdata,
    WorkingState,
    WorkingStateUpdate,
    merge_working_state,
)
from .noted import (
    NotedAction,
    NotedHandoff,
    NotedOutput,
    NotedPointer,
    NotedState,
    NotedTurn,
    NotedUserdata,
    RunHistory,
)

__all__ = ["RunNotes"]

OPEN = ("started", "unknown")
"""The status of an action whose end is not recorded."""


class RunNotes:
    """What is noted of one run. It is changed by every record; `history` is its value."""

    def __init__(self, run: RunHistory) -> None:
        """Begin with nothing said."""
        self._run = run
        self._state: WorkingState | None = None
        self._turns: list[NotedTurn] = []
        self._states: list[NotedState] = []
        self._userdata: list[NotedUserdata] = []
        self._pointers: list[NotedPointer] = []
        self._handoffs: list[NotedHandoff] = []
        self._actions: dict[str, NotedAction] = {}
        self._outputs: list[NotedOutput] = []
        self._dropped: dict[str, int] = {}

    @property
    def is_erased(self) -> bool:
        """Whether its content was erased: nothing is noted of it any more."""
        return self._run.outcome == "erased"

    def copy(self) -> RunNotes:
        """Return notes of their own, equal to these."""
        copied = RunNotes(self._run)
        copied._state = self._state
        copied._turns, copied._states = list(self._turns), list(self._states)
        copied._userdata, copied._pointers = list(self._userdata), list(self._pointers)
        copied._handoffs = list(self._handoffs)
        copied._actions, copied._outputs = dict(self._actions), list(self._outputs)
        copied._dropped = dict(self._dropped)
        return copied

    def erased(self, at: float) -> RunNotes:
        """Return what an erasure at this time leaves: number and times."""
        if self.is_erased:
            return self
        run = self._run
        return RunNotes(
            RunHistory(
                number=run.number,
                position=run.position,
                opened_at=run.opened_at,
                outcome="erased",
                outcome_at=at,
            )
        )

    def history(self) -> RunHistory:
        """Return the run as a value."""
        return self._run.model_copy(
            update={
                "turns": tuple(self._turns),
                "states": tuple(self._states),
                "userdata": tuple(self._userdata),
                "pointers": tuple(self._pointers),
                "handoffs": tuple(self._handoffs),
                "actions": tuple(self._actions.values()),
                "outputs": tuple(self._outputs),
                "dropped": dict(self._dropped),
            }
        )

    def end(self, outcome: str | None, at: float | None) -> None:
        """The run's lease was released with this outcome, or, with None, taken again."""
        self._run = self._run.model_copy(update={"outcome": outcome, "outcome_at": at})

    def settle(self, key: str, status: ActionStatus) -> None:
        """A new holder settled what another writer had running."""
        if known := self._actions.get(key):
            action = known.action.model_copy(update={"status": status})
            self._actions[key] = known.model_copy(update={"action": action})

    def note(self, record: Record, where: dict[str, Any]) -> None:
        """Note one record that can be read; `where` are the fields of `Noted`."""
        if how := _HOW.get(type(record)):
            if self._run.said_at is None or record.at > self._run.said_at:
                self._run = self._run.model_copy(update={"said_at": record.at})
            how(self, record, where)

    def _note_turn(self, turn: Turn, where: dict[str, Any]) -> None:
        self._turns.append(NotedTurn(turn=turn, **where))

    def _note_state(self, changes: WorkingStateUpdate, where: dict[str, Any]) -> None:
        late = where["standing"] == "late"
        if not late:
            self._state = merge_working_state(self._state, changes)
        state = None if late else self._state
        self._states.append(
            NotedState(changes=changes.changes, at=changes.at, state=state, **where)
        )

    def _note_userdata(self, userdata: Userdata, where: dict[str, Any]) -> None:
        self._userdata.append(NotedUserdata(at=userdata.at, data=userdata.data, **where))

    def _note_pointer(self, pointer: Pointer, where: dict[str, Any]) -> None:
        self._pointers.append(NotedPointer(pointer=pointer, **where))

    def _note_handoff(self, handoff: Handoff, where: dict[str, Any]) -> None:
        self._handoffs.append(NotedHandoff(handoff=handoff, **where))

    def _note_output(self, output: Output, where: dict[str, Any]) -> None:
        noted = NotedOutput(output=output, **where)
        for place, known in enumerate(self._outputs):
            if known.output.ref == output.ref:  # said again: it is missing
                self._outputs[place] = noted
                return
        self._outputs.append(noted)

    def _note_action(self, action: Action, where: dict[str, Any]) -> None:
        """The beginning keeps its place; what comes later under its key says how it went."""
        ended_at = None if action.status in OPEN else action.at
        if known := self._actions.get(action.key):
            if ended_at is not None and action.arguments == "{}":
                action = action.model_copy(update={"arguments": known.action.arguments})
            update = {"action": action, "ended_at": ended_at}
            self._actions[action.key] = known.model_copy(update=update)
        else:
            self._actions[action.key] = NotedAction(
                action=action, begun_at=action.at, ended_at=ended_at, **where
            )

    def _note_dropped(self, marker: Dropped, where: dict[str, Any]) -> None:
        self._dropped[marker.of] = self._dropped.get(marker.of, 0) + 1


_HOW: dict[type[Any], Callable[[RunNotes, Any, dict[str, Any]], None]] = {
    Turn: RunNotes._note_turn,
    WorkingStateUpdate: RunNotes._note_state,
    Userdata: RunNotes._note_userdata,
    Pointer: RunNotes._note_pointer,
    Handoff: RunNotes._note_handoff,
    Output: RunNotes._note_output,
    Action: RunNotes._note_action,
    Dropped: RunNotes._note_dropped,
}
