"""The wire, version 1: what the bodies of requests and answers are, and their limits.

JSON over HTTP; values of the models and of the engine's requests travel as they are. A reader
ignores fields that it does not know. Errors are problems (see `problems`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from .engine.entries import Entry
from .engine.liveness import Liveness
from .engine.requests import Ack, Acquire
from .models import Outcome, Partial, Record, Turn, Value
from .problems import Problem

__all__ = [
    "BODY_BYTES",
    "UNITS",
    "UNIT_RECORDS",
    "EntriesAnswer",
    "LeaseRequest",
    "PartialsRequest",
    "RecordsAnswer",
    "RecordsRequest",
    "RecordsUnit",
    "ReleaseRequest",
    "RenewRequest",
    "RunAnswer",
    "StreamEvent",
    "TurnsAnswer",
    "UnitAnswer",
]

BODY_BYTES = 16 * 1024 * 1024
"""The largest body of one request."""
UNITS = 256
"""The most units in one `RecordsRequest`."""
UNIT_RECORDS = 1024
"""The most records in one unit."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""A writer or an attempt: what a client made up and nobody else uses."""
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Number = Annotated[int, Field(ge=0, le=2**53)]


class LeaseRequest(Acquire):
    """POST .../lease and .../runs: an `Acquire` within its limits. `ttl` is in seconds."""

    writer: Name
    attempt: Name
    ttl: float = Field(ge=2.0, le=3600.0)
    agent_name: str | None = Field(default=None, max_length=256)
    lock: None = None
    tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    read_position: Number | None = None


class RenewRequest(Value):
    """PUT .../lease/{epoch}: the holder lives."""

    writer: Name


class ReleaseRequest(Value):
    """POST .../lease/{epoch}/release: the holder gives it back."""

    writer: Name
    outcome: Outcome = "handover"


class Provisional(Value):
    """What a writer without the lease writes to: the run, and the epoch that it had read."""

    run: Number
    epoch_read: Number


class RecordsUnit(Value):
    """One writer's records of one call, numbered from `first`: one entry of its chain.

    Either `epoch` (under the lease) or `provisional` is given.
    """

    call_id: CallId
    writer: Name
    first: int = Field(ge=1, le=2**53)
    records: tuple[Record, ...] = Field(min_length=1, max_length=UNIT_RECORDS)
    epoch: Number | None = None
    provisional: Provisional | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> RecordsUnit:
        if (self.epoch is None) == (self.provisional is None):
            raise ValueError("give either epoch or provisional")
        return self


class RecordsRequest(Value):
    """POST /v1/records: units of any number of calls, at most one of each writer."""

    units: tuple[RecordsUnit, ...] = Field(min_length=1, max_length=UNITS)


class UnitAnswer(Value):
    """How one unit went: durable, or why not. The others are not touched by it."""

    ack: Ack | None = None
    problem: Problem | None = None


class RecordsAnswer(Value):
    """The answers in the order of the units."""

    answers: tuple[UnitAnswer, ...]


class RunAnswer(Value):
    """The run that provisional records of this origin belong to."""

    run: int


class PartialsRequest(Value):
    """PUT .../partials: the writer's speech under way, both sides; it replaces what was there."""

    writer: Name
    run: Number
    partials: tuple[Partial, ...] = Field(max_length=8)


class PartialsAnswer(Value):
    """Whether they were written: not before the writer's first entry, nor after an erasure."""

    written: bool


class TurnsAnswer(Value):
    """GET .../turns: at most `limit` turns before `before`, the newest of them, oldest first."""

    turns: tuple[Turn, ...]
    more: bool


class EntriesAnswer(Value):
    """GET .../entries: the chain from `start` on, as it is."""

    start: int
    entries: tuple[Entry, ...]


class StreamEvent(Value):
    """One line of a stream (JSON, newline). `alive` comes every second and says nothing else."""

    event: Literal["open", "alive", "lost", "free", "entry", "drain"]
    epoch: int | None = None
    holder: str | None = None
    liveness: Liveness | None = None
    position: int | None = None
    entry: Entry | None = None
