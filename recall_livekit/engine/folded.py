"""A fold as a value, which is what a snapshot holds, and the hashes that name its parts."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field, JsonValue

from ..models import Action, Output, Pointer, Turn, Value, WorkingState
from .entries import LeaseEntry, RecordsEntry

__all__ = ["Folded", "RunView", "Writer", "entry_id", "sid_hash"]


def entry_id(data: bytes) -> str:
    """Return the id of an entry's stored form: what a snapshot names (rule 16)."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def sid_hash(room_sid: str) -> str:
    """Return what stays of a room's sid after its call was erased (rule 13)."""
    return hashlib.sha256(b"recall room sid\0" + room_sid.encode()).hexdigest()[:32]


class RunView(Value):
    """The current run as the chain tells it. `said_at` is the newest time something was said."""

    number: int
    room_sid: str | None = None
    caller: str | None = None
    opened_at: float = 0.0
    said_at: float | None = None
    outcome: str | None = None
    outcome_at: float | None = None


class Writer(Value):
    """What the chain knows of a writer: its last number, its first entry, the attempts of its
    newest leases, the newest last, and the numbers of its last spoken turns."""

    last: int = 0
    anchor: int
    attempts: tuple[str, ...] = ()
    user: int = 0
    assistant: int = 0


class Folded(Value):
    """A fold as a value: what a snapshot holds (rule 16)."""

    v: Annotated[int, Field(ge=1)] = 1
    position: int = 0
    last_id: str = ""
    epoch: int = 0
    lease: LeaseEntry | None = None
    lease_position: int = -1
    run: RunView | None = None
    erased_run: int = 0
    sids: tuple[str, ...] = ()
    erased_sids: tuple[str, ...] = ()
    erases: tuple[int, ...] = ()
    writers: dict[str, Writer] = Field(default_factory=dict)
    waiting: tuple[tuple[int, RecordsEntry], ...] = ()
    turns: tuple[Turn, ...] = ()
    turn_count: int = 0
    run_turns: int = 0
    working_state: WorkingState | None = None
    userdata: JsonValue = None
    pointers: dict[str, Pointer] = Field(default_factory=dict)
    actions: dict[str, Action] = Field(default_factory=dict)
    begun_by: dict[str, str] = Field(default_factory=dict)
    finished: tuple[Action, ...] = ()
    outputs: tuple[Output, ...] = ()
    agent: str | None = None
    recent: tuple[str, ...] = ()
    turn_anchor: int = -1
    unreadable: int = 0
    dropped: dict[str, int] = Field(default_factory=dict)
