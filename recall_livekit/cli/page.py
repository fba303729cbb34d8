"""The page that ``show`` writes for a person: how the call stands, what was said, and the rest."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..engine.noted import History, LeaseHistory, NotedAction, NotedState, RunHistory
from ..models import Partial
from .paper import Paper, Span
from .telling import (
    action_line,
    changes_line,
    dim,
    fields_of,
    lease_line,
    note_line,
    output_line,
    partial_line,
    run_line,
    turn_line,
)
from .texts import shown_id
from .times import clock

__all__ = ["STATE_STYLES", "write_page"]

STATE_STYLES = {"live": "bold green", "lapsed": "yellow", "erased": "red"}
WIDTH = 16
"""Of the names of the working state's fields."""


def write_page(
    paper: Paper,
    call: str,
    state: str | None,
    history: History,
    partials: Sequence[Partial],
    run: int | None = None,
) -> None:
    """Write the newest run, or `run`, and one line of each other."""
    now = time.time()
    shown = history.run(run)
    _write_head(paper, call, state, history)
    if history.runs:
        paper.heading("Runs" if len(history.runs) > 1 else "Run")
        for one in history.runs:
            run_line(paper, one, now)
    if shown is not None:
        _write_said(paper, shown, history.leases, partials)
        _write_state(paper, shown.states)
        _write_beside(paper, shown)
        _write_actions(paper, shown.actions)
    _write_leases(paper, history, now, alive=state != "lapsed")


def _write_head(paper: Paper, call: str, state: str | None, history: History) -> None:
    stood = state or f"as it stood at position {history.position - 1}"
    paper.line(
        Span(shown_id(call), "bold"),
        "  ",
        Span(stood, STATE_STYLES.get(stood, "")),
        dim(f"  position {history.position - 1}, epoch {history.epoch}"),
    )
    if history.unreadable:
        note_line(paper, f"{history.unreadable} newer than this version, or damaged: not shown")


def _write_said(
    paper: Paper, run: RunHistory, leases: Sequence[LeaseHistory], partials: Sequence[Partial]
) -> None:
    """The turns in their order, with the leases between them."""
    if run.outcome == "erased":
        return
    paper.heading(f"Said in run {run.number}")
    changes = [lease for lease in leases if lease.run == run.number]
    for noted in run.turns:
        while changes and changes[0].position < noted.position:
            _write_change(paper, changes.pop(0))
        turn_line(paper, noted.turn, noted.standing)
    for lease in changes:
        _write_change(paper, lease)
    for partial in partials:
        partial_line(paper, partial)
    for of, count in sorted(run.dropped.items()):
        note_line(paper, f"{count} x {of} dropped on purpose")


def _write_change(paper: Paper, lease: LeaseHistory) -> None:
    whom = f"{lease.agent_name}, writer {lease.writer}" if lease.agent_name else lease.writer
    paper.line(dim(f"  {clock(lease.taken_at)}  -- epoch {lease.epoch}: {whom}"))


def _write_state(paper: Paper, states: Sequence[NotedState]) -> None:
    versions = [noted.state for noted in states if noted.state is not None]
    if versions:
        newest = versions[-1]
        paper.heading(f"Working state, version {newest.version}")
        for name, value in newest.model_dump(exclude={"version", "at"}).items():
            if value not in (None, ()):
                paper.line(f"  {name:<{WIDTH}}", body=fields_of(value))
    if len(states) > 1:
        paper.heading("Its updates")
        for noted in states:
            changes_line(paper, noted)


def _write_beside(paper: Paper, run: RunHistory) -> None:
    counting = [noted for noted in run.userdata if noted.standing != "late"]
    if counting:
        paper.heading(f"Userdata, version {len(counting)}")
        note_line(paper, fields_of(counting[-1].data))
    pointers = {n.pointer.name: n.pointer for n in run.pointers if n.standing != "late"}
    if pointers:
        paper.heading("Pointers")
        for pointer in pointers.values():
            note_line(paper, f"{pointer.name}: {pointer.type} {fields_of(pointer.fields)}")
    if run.outputs:
        paper.heading("Outputs, each by its ref: `recall-livekit fetch CALL REF`")
        for noted in run.outputs:
            note_line(paper, output_line(noted.output))


def _write_actions(paper: Paper, actions: Sequence[NotedAction]) -> None:
    if actions:
        paper.heading("Actions")
    for noted in actions:
        took = None if noted.ended_at is None else noted.ended_at - noted.begun_at
        action_line(paper, noted.action, noted.begun_at, took, noted.standing)


def _write_leases(paper: Paper, history: History, now: float, *, alive: bool) -> None:
    if history.leases or history.erasures:
        paper.heading("Leases")
    for lease in history.leases:
        lease_line(paper, lease, now, alive=alive)
    for erasure in history.erasures:
        note_line(paper, f"erased at {clock(erasure.at)}: all below position {erasure.position}")
