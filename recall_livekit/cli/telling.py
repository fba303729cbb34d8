"""How one record, lease or run of a call reads: the same in `show` and while it is followed."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..engine.noted import LeaseHistory, NotedState, RunHistory, Standing
from ..models import (
    Action,
    Dropped,
    Handoff,
    Output,
    Partial,
    Pointer,
    Record,
    Turn,
    Userdata,
    WorkingStateUpdate,
)
from .paper import Paper, Span
from .texts import shortened
from .times import clock, lasting, moment

__all__ = [
    "ENDS",
    "action_line",
    "changes_line",
    "dim",
    "fields_of",
    "lease_line",
    "note_line",
    "output_line",
    "partial_line",
    "record_line",
    "run_line",
    "turn_line",
]

WHO = 10
"""The width of the column that says who speaks."""
LONGEST = 300
"""Characters of what is no speech: arguments, results, userdata."""
_ROLES = {"user": ("caller", "bold cyan"), "assistant": ("agent", "bold green")}
_MARKS: dict[Standing, str] = {
    "held": "",
    "provisional": "[provisional]",
    "late": "[late]",
    "waiting": "[waiting]",
}

ENDS = {
    "handover": "handed over",
    "left": "released: the caller left",
    "ended": "released: the call ended",
    "released": "released",
    "taken_over": "taken over",
    "taken_again": "lapsed, taken again",
    "followed": "followed by another run",
    "erased": "erased",
    "unknown": "ended by an entry newer than this version",
}

_OUTCOMES = {
    "": "goes on",
    "handover": "handed over",
    "left": "the caller left",
}


def dim(text: str) -> Span:
    """Return what is beside the point."""
    return Span(text, "dim")


def note_line(paper: Paper, text: str) -> None:
    """Write a line of a part that has no columns."""
    paper.line("  ", body=text)


def output_line(output: Output) -> str:
    """Return what is kept beside the chain, and how it begins."""
    what = f"{output.ref}  {output.name}, {output.chars} characters"
    if output.missing:
        return f"{what}, not there any more"
    return f"{what}: {shortened(output.preview, LONGEST)}" if output.preview else what


def turn_line(paper: Paper, turn: Turn, standing: Standing = "held") -> None:
    """Write what somebody said, and how it counts."""
    who, style = _ROLES.get(turn.role, (turn.role, "bold magenta"))
    if turn.role == "assistant" and turn.agent:
        who = turn.agent
    elif turn.name:
        who = turn.name
    marks = " ".join(filter(None, (*_turn_marks(turn), _MARKS[standing])))
    head = (dim(f"  {clock(turn.at)}  "), Span(_column(who), style))
    paper.line(*head, body=turn.content or "(nothing)", marks=marks)


def _turn_marks(turn: Turn) -> tuple[str, ...]:
    aside = "[not answered]" if turn.role == "user" else "[never heard]"
    return ("[interrupted]" if turn.interrupted else "", "" if turn.committed else aside)


def partial_line(paper: Paper, partial: Partial) -> None:
    """Write the words at which somebody was cut off."""
    who, style = _ROLES.get(partial.role, (partial.role, "bold magenta"))
    head = (dim(f"  {clock(partial.at)}  "), Span(_column(who), style))
    paper.line(*head, body=f"{partial.text} —", marks="[cut off here]")


def lease_line(paper: Paper, lease: LeaseHistory, now: float, *, alive: bool = True) -> None:
    """Write who had the call, for how long, and how it ended. `alive` says of a lease in force
    whether its holder lives."""
    paper.line(
        f"  epoch {lease.epoch:<4}",
        dim(f"{moment(lease.taken_at, now):<19}  "),
        body=f"{_named(lease.agent_name, lease.writer)}, {_ended(lease, now, alive)}",
    )


def _ended(lease: LeaseHistory, now: float, alive: bool) -> str:
    if lease.end is None and not alive:
        return "not released, and its holder is gone"
    if lease.end is None or lease.ended_at is None:
        return f"in force for {lasting(now - lease.taken_at)}"
    by = f" by writer {lease.ended_by}" if lease.end == "taken_over" and lease.ended_by else ""
    return f"{lasting(lease.ended_at - lease.taken_at)}, {ENDS[lease.end]}{by}"


def run_line(paper: Paper, run: RunHistory, now: float) -> None:
    """Write how a run began, what was said, and how it ended."""
    parts = [moment(run.opened_at, now)]
    parts += [f"room {run.room_sid}"] if run.room_sid else []
    parts += [f"caller {run.caller}"] if run.caller else []
    if run.outcome != "erased":
        parts.append(f"{len(run.turns)} turn{'' if len(run.turns) == 1 else 's'}")
    at = f" {clock(run.outcome_at)}" if run.outcome_at is not None else ""
    parts.append(f"{_OUTCOMES.get(run.outcome or '', run.outcome)}{at}")
    paper.line(Span(f"  run {run.number:<4}"), body=", ".join(parts))


def action_line(
    paper: Paper, action: Action, at: float, took: float | None, standing: Standing
) -> None:
    """Write a tool call: what was asked, of which class it is, and how it went."""
    style = {"done": "green", "failed": "red", "unknown": "bold red"}.get(action.status, "yellow")
    asked = f"{action.tool}({shortened(action.arguments, LONGEST)})"
    lasted = f" in {lasting(took)}" if took is not None else ""
    result = f" → {shortened(action.result, LONGEST)}" if action.result else ""
    result += f" (all of it: ref {action.result_ref})" if action.result_ref else ""
    paper.line(
        dim(f"  {clock(at)}  "),
        Span(_column(action.status), style),
        body=f"{asked} {action.action_class}{lasted}{result}",
        marks=_MARKS[standing],
    )


def changes_line(paper: Paper, noted: NotedState) -> None:
    """Write what an update of the working state changed."""
    version = f"v{noted.state.version}" if noted.state else ""
    head = (dim(f"  {clock(noted.at)}  "), f"{version:<{WHO}}  ")
    paper.line(*head, body=_changes(noted.changes), marks=_MARKS[noted.standing])


def record_line(paper: Paper, record: Record, standing: Standing) -> None:
    """Write a record as it comes."""
    match record:
        case Turn():
            turn_line(paper, record, standing)
        case Action():
            action_line(paper, record, record.at, None, standing)
        case _:
            what, told = _others(record)
            head = (dim(f"  {clock(record.at)}  "), dim(_column(what)))
            paper.line(*head, body=told, marks=_MARKS[standing])


def _others(record: Record) -> tuple[str, str]:
    match record:
        case WorkingStateUpdate():
            return "state", _changes(record.changes)
        case Userdata():
            return "userdata", fields_of(record.data)
        case Pointer():
            return "pointer", f"{record.name}: {record.type} {fields_of(record.fields)}"
        case Handoff():
            return "handoff", f"from {record.previous or 'nobody'} to {record.agent}"
        case Output():
            return "output", output_line(record)
        case Dropped():
            return "dropped", f"a {record.of}: {record.reason}"
    return "unreadable", "a record newer than this version: upgrade to read it"


def fields_of(value: object) -> str:
    """Return a value of the working state or a pointer as a person writes it."""
    match value:
        case None:
            return "none"
        case str():
            return shortened(value, LONGEST)
        case list() | tuple():
            return "; ".join(map(fields_of, value)) or "none"
        case dict():
            return ", ".join(f"{name}={fields_of(one)}" for name, one in value.items())
    return json.dumps(value, ensure_ascii=False)


def _changes(changes: Mapping[str, object]) -> str:
    return ", ".join(f"{name}: {fields_of(value)}" for name, value in changes.items()) or "none"


def _named(agent_name: str | None, writer: str) -> str:
    return f"{agent_name} (writer {writer})" if agent_name else f"writer {writer}"


def _column(who: str) -> str:
    cut = who if len(who) <= WHO else f"{who[: WHO - 1]}…"
    return f"{cut:<{WHO}}  "
