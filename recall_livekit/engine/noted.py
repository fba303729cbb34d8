"""What a history tells, as values: runs, leases, and where each record is in the chain."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from ..models import Action, Handoff, Output, Pointer, Turn, Value, WorkingState

__all__ = [
    "Erasure",
    "History",
    "LeaseEnd",
    "LeaseHistory",
    "Noted",
    "NotedAction",
    "NotedHandoff",
    "NotedOutput",
    "NotedPointer",
    "NotedState",
    "NotedTurn",
    "NotedUserdata",
    "RunHistory",
    "Standing",
]

Standing = Literal["held", "provisional", "late", "waiting"]
"""How a record counts: written under the lease; without it, but it counts; after another writer
had the call, so that it is history and no state; or it waits for the next lease (rule 7)."""

LeaseEnd = Literal[
    "handover",
    "left",
    "ended",
    "released",
    "taken_over",
    "taken_again",
    "followed",
    "erased",
    "unknown",
]
"""How a lease ended: released with an outcome (`released` where an erasure took the outcome),
taken by another writer, taken anew by its own after it lapsed, followed by another run, erased,
or by an entry that this version cannot read."""


class Noted(Value):
    """Where a record is in the chain, whose it is, and how it counts."""

    position: int
    writer: str
    number: int
    standing: Standing = "held"


class NotedTurn(Noted):
    """One message."""

    turn: Turn


class NotedState(Noted):
    """One update of the working state, and what it made of it: None if it was late."""

    at: float
    changes: dict[str, JsonValue]
    state: WorkingState | None = None


class NotedUserdata(Noted):
    """One version of the application's own state."""

    at: float
    data: JsonValue


class NotedPointer(Noted):
    """One pointer."""

    pointer: Pointer


class NotedHandoff(Noted):
    """One change of the active agent."""

    handoff: Handoff


class NotedOutput(Noted):
    """One large tool result."""

    output: Output


class NotedAction(Noted):
    """One tool call from its beginning to its end. `action` has the newest status; `ended_at` is
    None while it is open, and where a lease settled it without its end being recorded."""

    action: Action
    begun_at: float
    ended_at: float | None = None


class RunHistory(Value):
    """One run. `outcome` is how its last lease was released, `erased` if it was erased, None
    while it goes on. Of an erased run nothing is told but its number and times."""

    number: int
    position: int
    opened_at: float
    room_sid: str | None = None
    caller: str | None = None
    said_at: float | None = None
    outcome: str | None = None
    outcome_at: float | None = None
    turns: tuple[NotedTurn, ...] = ()
    states: tuple[NotedState, ...] = ()
    userdata: tuple[NotedUserdata, ...] = ()
    pointers: tuple[NotedPointer, ...] = ()
    handoffs: tuple[NotedHandoff, ...] = ()
    actions: tuple[NotedAction, ...] = ()
    outputs: tuple[NotedOutput, ...] = ()
    dropped: dict[str, int] = Field(default_factory=dict)


class LeaseHistory(Value):
    """One lease: who took it, where and when, and how it ended; `end` is None while it is in
    force. `sign` is the holder's sign of life. An erasure leaves epoch, writer and times."""

    epoch: int
    writer: str
    position: int
    taken_at: float
    run: int | None = None
    agent_name: str | None = None
    ttl: float | None = None
    sign: Literal["lock", "stream", "renewals"] | None = None
    end: LeaseEnd | None = None
    ended_at: float | None = None
    ended_by: str | None = None

    def erased(self) -> LeaseHistory:
        """Return what an erasure leaves of it."""
        told = self.end in ("handover", "left", "ended")
        update = {"run": None, "agent_name": None, "ttl": None, "sign": None}
        return self.model_copy(update=update | ({"end": "released"} if told else {}))


class Erasure(Value):
    """All content below `position` was erased."""

    position: int
    at: float
    epoch: int


class History(Value):
    """All that a chain of `position` entries tells. Runs and leases are in their order."""

    v: Literal[1] = 1
    position: int
    epoch: int
    runs: tuple[RunHistory, ...] = ()
    leases: tuple[LeaseHistory, ...] = ()
    erasures: tuple[Erasure, ...] = ()
    unreadable: int = 0

    @property
    def lease(self) -> LeaseHistory | None:
        """The lease in force."""
        return self.leases[-1] if self.leases and self.leases[-1].end is None else None

    def run(self, number: int | None = None) -> RunHistory | None:
        """Return the run of this number, or the newest."""
        of_number = [run for run in self.runs if number in (None, run.number)]
        return of_number[-1] if of_number else None
