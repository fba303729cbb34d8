"""The wire, version 1: what the bodies of requests and answers are, and their limits.

JSON over HTTP; values of the models and of the engine's requests travel as they are. A reader
ignores fields that it does not know. Errors are problems (see `problems`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field, StringConstraints, TypeAdapter, model_validator

from .engine.entries import Entry
from .engine.listing import CallStanding, CallSummary
from .engine.liveness import Liveness
from .engine.news import EventKind
from .engine.outputs import OUTPUT_BYTES
from .engine.requests import Ack, Acquire
from .engine.runs import Origin
from .models import RECORD_CHARS, Outcome, Partial, Record, Turn, Value
from .problems import Problem

__all__ = [
    "BODY_BYTES",
    "ENTRIES",
    "TURNS",
    "UNITS",
    "UNIT_RECORDS",
    "CallsLine",
    "CallsQuery",
    "EntriesAnswer",
    "EntriesQuery",
    "EventLine",
    "LeaseRequest",
    "OutputAnswer",
    "OutputRequest",
    "OutputText",
    "PartialsRequest",
    "ReadQuery",
    "RecordsAnswer",
    "RecordsRequest",
    "RecordsUnit",
    "ReleaseRequest",
    "RenewRequest",
    "RunAnswer",
    "StreamEvent",
    "StreamQuery",
    "TurnsAnswer",
    "TurnsQuery",
    "UnitAnswer",
    "calls_line",
]

BODY_BYTES = 4 * 1024 * 1024
"""The largest body of one request."""
UNITS = 256
"""The most units in one `RecordsRequest`."""
UNIT_RECORDS = 1024
"""The most records in one unit."""
TURNS = 1000
"""The most turns in one `TurnsAnswer`; long ones make it fewer (`more` says so)."""
ENTRIES = 256
"""The most entries in one `EntriesAnswer`; long ones make it fewer, none is its end."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""A writer or an attempt: what a client made up and nobody else uses."""
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Number = Annotated[int, Field(ge=0, le=2**53)]
Text = Annotated[str, StringConstraints(max_length=1024)]
"""What a room's sid or a caller's identity fits in."""
Tokens = Annotated[int, Field(ge=1, le=1_000_000)]


class OriginOfRequest(Origin):
    """An `Origin` within its limits. Its `at` is the server's to say."""

    room_sid: Text | None = None
    caller: Text | None = None
    verdict: tuple[Number, bool] | None = None


class LeaseRequest(Acquire):
    """POST .../lease and .../runs: an `Acquire` within its limits. `ttl` is in seconds."""

    writer: Name
    attempt: Name
    ttl: float = Field(ge=2.0, le=3600.0)
    origin: OriginOfRequest = OriginOfRequest()
    agent_name: str | None = Field(default=None, max_length=256)
    lock: None = None
    steal_epoch: Number | None = None
    tokens: Tokens | None = None
    read_position: Number | None = None
    said_at: float | None = Field(default=None, ge=0, le=1e11)


class ReadQuery(Value):
    """GET /v1/calls/{id}. A worker gives its origin, or says `worker=1` if it has none to give:
    it is shown the run that it would go on with. Anybody else is shown the call as it is.

    `verdict` is what `same_call` said of the run `verdict_run` (see `Origin`).
    """

    room_sid: Text | None = None
    caller: Text | None = None
    verdict_run: Number | None = None
    verdict: bool | None = None
    worker: bool = False
    tokens: Tokens | None = None

    @model_validator(mode="after")
    def _both_of_a_verdict(self) -> ReadQuery:
        if (self.verdict is None) != (self.verdict_run is None):
            raise ValueError("give both verdict and verdict_run, or neither")
        return self

    @property
    def origin(self) -> Origin | None:
        """The worker's origin, None for an onlooker."""
        asked = self.worker or (self.room_sid, self.caller, self.verdict_run) != (None,) * 3
        verdict = None
        if self.verdict_run is not None and self.verdict is not None:
            verdict = (self.verdict_run, self.verdict)
        origin = Origin(room_sid=self.room_sid, caller=self.caller, verdict=verdict)
        return origin if asked else None


class CallsQuery(Value):
    """GET /v1/calls: only the calls that stand so, or all."""

    state: CallStanding | None = None


class TurnsQuery(Value):
    """GET .../turns: the newest `limit` of those whose `seq` is below `before`."""

    before: int | None = Field(default=None, ge=1, le=2**53)
    limit: int = Field(default=200, ge=1, le=TURNS)


class EntriesQuery(Value):
    """GET .../entries: at most `limit` from position `start` on."""

    start: Number = 0
    limit: int = Field(default=ENTRIES, ge=1, le=ENTRIES)


class StreamQuery(Value):
    """GET .../stream: a holder gives its `writer` and `epoch`; `start` follows the entries."""

    writer: Name | None = None
    epoch: Number | None = None
    start: Number | None = None

    @model_validator(mode="after")
    def _both_of_a_holder(self) -> StreamQuery:
        if (self.writer is None) != (self.epoch is None):
            raise ValueError("give both writer and epoch, or neither")
        return self


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
    records: Annotated[tuple[Record, ...], FailFast()] = Field(
        min_length=1, max_length=UNIT_RECORDS
    )
    epoch: Number | None = None
    provisional: Provisional | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> RecordsUnit:
        if (self.epoch is None) == (self.provisional is None):
            raise ValueError("give either epoch or provisional")
        return self


class RecordsRequest(Value):
    """POST /v1/records: units of any number of calls, each answered on its own.

    Units of one call are written in their order. One that does not have this form is answered
    with its problem, and the others are not touched by it.
    """

    units: Annotated[tuple[RecordsUnit, ...], FailFast()] = Field(min_length=1, max_length=UNITS)


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


class SaidPartial(Partial):
    """A partial within its limits."""

    text: str = Field(max_length=RECORD_CHARS + 100)
    message_id: str | None = Field(default=None, max_length=256)


class PartialsRequest(Value):
    """PUT .../partials: the writer's speech under way, both sides; it replaces what was there."""

    writer: Name
    run: Number
    partials: Annotated[tuple[SaidPartial, ...], FailFast()] = Field(max_length=8)


class PartialsAnswer(Value):
    """Whether they were written: not before the writer's first entry, nor after an erasure."""

    written: bool


class OutputRequest(Value):
    """PUT .../outputs: a text to be kept beside the chain, of at most 1 MiB in UTF-8. `counter` is
    how many of the writer's outputs are known to be there."""

    writer: Name
    counter: Number
    text: str = Field(max_length=OUTPUT_BYTES)


class OutputAnswer(Value):
    """The ref that fetches it; null while the writer has no entry in the chain."""

    ref: str | None


class OutputText(Value):
    """GET .../outputs/{ref}: the whole text."""

    ref: str
    text: str


class TurnsAnswer(Value):
    """GET .../turns: at most `limit` turns before `before`, the newest of them, oldest first."""

    turns: tuple[Turn, ...]
    more: bool


class EntriesAnswer(Value):
    """GET .../entries: the chain from `start` on, as it is."""

    start: int
    entries: tuple[Entry, ...]


class StreamEvent(Value):
    """One line of a stream (JSON, newline). `alive` comes every second and says nothing else.

    A holder is told `open`, in the end `lost`. A waiter is told `broken` at once when the holder's
    stream breaks, `open` if it came back, in the end `free`.
    """

    event: Literal["open", "alive", "broken", "lost", "free", "entry", "drain"]
    epoch: int | None = None
    holder: str | None = None
    liveness: Liveness | None = None
    position: int | None = None
    entry: Entry | None = None


class EventLine(Value):
    """One line of GET /v1/events (JSON, newline): a `CallEvent`, or what the stream says of
    itself. `alive` comes every second and says nothing else."""

    event: Literal[EventKind, "alive", "drain"]
    call_id: str | None = None
    epoch: int | None = None
    outcome: Outcome | None = None


CallsLine = CallSummary | Problem
"""One line of GET /v1/calls (JSON, newline). A `Problem` is the last line: some calls are
missing from the list."""

calls_line: TypeAdapter[CallsLine] = TypeAdapter(CallsLine)
