"""The words of Recall as frozen values: records, entries of the chain, and what a reader gets.

Every record and entry carries ``v``, its version. A reader reads every older version, skips and
counts what is newer than itself, and ignores fields that it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    JsonValue,
    Tag,
    ValidationError,
)

from .errors import InvalidRecord
from .sentences import last_sentence

VERSION = 1
RECORD_CHARS = 256 * 1024
"""The longest text of one record; what is longer is cut there and says so."""

Role = Literal["user", "assistant", "tool", "system"]
_SPOKEN = ("user", "assistant")
Outcome = Literal["handover", "left", "ended"]
ActionClass = Literal["pure", "idempotent", "external"]
PointerType = Literal["git_ref", "object", "env", "external", "process"]
ActionStatus = Literal["started", "done", "failed", "abandoned", "unknown"]


class Value(BaseModel):
    """A frozen value; unknown fields are ignored, so that newer writers do not break readers."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


# --- records ----------------------------------------------------------------------------------


class RecordBase(Value):
    """What every record has: its version, and when it was said or done (Unix seconds)."""

    v: Literal[1] = 1
    at: FiniteFloat


class Turn(RecordBase):
    """One message, verbatim. `seq` is its place among the call's turns, 0 until it has one.

    `late` is a reader's: the turn came in after another writer had the call (rule 7), so it was
    said before turns that are above it. What a writer puts there does not count.

    `name` is, of a user turn in a room, who calls: the telephone number or the identity.

    `committed` says that it became part of the conversation that the model is given. If not, the
    caller said it and no reply was asked for (LiveKit's StopResponse, a hook that failed), or the
    agent had it ready and none of it was heard.
    """

    kind: Literal["turn"] = "turn"
    seq: int = 0
    role: Role
    content: str
    name: str | None = None
    message_id: str | None = None
    agent: str | None = None
    interrupted: bool = False
    late: bool = False
    committed: bool = True


class WorkingState(Value):
    """What the agent is doing, in its own words; `version` counts its updates from 1."""

    goal: str | None = None
    plan: tuple[str, ...] = ()
    progress: str | None = None
    focus: str | None = None
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    notes: str | None = None
    step: int | None = None
    last_milestone: str | None = None
    version: int = 0
    at: float = 0.0


class WorkingStateChanges(TypedDict, total=False):
    """What an update of the working state may change; what is not given stays as it is."""

    goal: str | None
    plan: Sequence[str]
    progress: str | None
    focus: str | None
    decisions: Sequence[str]
    open_questions: Sequence[str]
    notes: str | None
    step: int | None
    last_milestone: str | None


class WorkingStateUpdate(RecordBase):
    """The fields of the working state that changed; the others stay as they are."""

    kind: Literal["working_state"] = "working_state"
    changes: dict[str, JsonValue]


class Userdata(RecordBase):
    """The application's own state (`session.userdata`), whole, as JSON."""

    kind: Literal["userdata"] = "userdata"
    data: JsonValue = None


class Pointer(RecordBase):
    """Where work lives outside the records; a later one of the same name replaces it."""

    kind: Literal["pointer"] = "pointer"
    name: str
    type: PointerType
    fields: dict[str, str] = Field(default_factory=dict)


class Handoff(RecordBase):
    """Another agent of the session is the active one from here on; both by their labels."""

    kind: Literal["handoff"] = "handoff"
    agent: str
    previous: str | None = None


class Action(RecordBase):
    """A tool call: recorded as started before it runs, then again with how it went.

    `key` names the tool call for ever; an idempotent tool passes it on when it runs again.
    `call_id` is the model's name for it. `result_ref` fetches a result that is too long for a
    record. `unrecorded` says that it ran though its beginning was not durable (rule 18).
    """

    kind: Literal["action"] = "action"
    key: str
    tool: str
    action_class: ActionClass = "external"
    status: ActionStatus = "started"
    arguments: str = "{}"
    result: str | None = None
    result_ref: str | None = None
    call_id: str | None = None
    agent: str | None = None
    unrecorded: bool = False


class Output(RecordBase):
    """A long text kept beside the chain, a large tool result for instance; `ref` fetches it.

    `preview` is how it begins. `missing` says that it was looked for and is not there: it is
    recorded anew then, and replaces what was said of this ref before.
    """

    kind: Literal["output"] = "output"
    ref: str
    name: str
    chars: int
    preview: str = ""
    missing: bool = False


class Dropped(RecordBase):
    """The numbered place of a record that was dropped on purpose (rule 4)."""

    kind: Literal["dropped"] = "dropped"
    of: str
    reason: str


LooseTime = Annotated[float, BeforeValidator(lambda at: at if isinstance(at, int | float) else 0.0)]
"""When something newer than this reader was done; a newer version may tell it in another way."""


class Unreadable(Value):
    """A record newer than this reader: it keeps its number, is skipped and counted."""

    kind: str = "?"
    v: int = 0
    at: LooseTime = 0.0


_RECORDS = (
    "turn",
    "working_state",
    "userdata",
    "pointer",
    "handoff",
    "action",
    "output",
    "dropped",
)


def known_kind(value: Any, kinds: Collection[str], otherwise: str) -> str:
    """Return the kind of a stored value, `otherwise` if this version cannot read it."""
    if isinstance(value, dict):
        kind, version = value.get("kind"), value.get("v", 1)
    else:
        kind, version = getattr(value, "kind", None), getattr(value, "v", 0)
    return str(kind) if version == VERSION and kind in kinds else otherwise


def _record_tag(value: Any) -> str:
    return known_kind(value, _RECORDS, "unreadable")


Record = Annotated[
    Annotated[Turn, Tag("turn")]
    | Annotated[WorkingStateUpdate, Tag("working_state")]
    | Annotated[Userdata, Tag("userdata")]
    | Annotated[Pointer, Tag("pointer")]
    | Annotated[Handoff, Tag("handoff")]
    | Annotated[Action, Tag("action")]
    | Annotated[Output, Tag("output")]
    | Annotated[Dropped, Tag("dropped")]
    | Annotated[Unreadable, Tag("unreadable")],
    Discriminator(_record_tag),
]


_working_state_fields = frozenset(WorkingState.model_fields) - {"version", "at"}


def working_state_update(at: float, changes: Mapping[str, object]) -> WorkingStateUpdate:
    """Return the record of these changes to the working state.

    Raises:
        InvalidRecord: A field does not exist or has a wrong type.
    """
    unknown = sorted(changes.keys() - _working_state_fields)
    if unknown:
        raise InvalidRecord(
            f"the working state has no field {', '.join(unknown)}; "
            f"it has {', '.join(sorted(_working_state_fields))}"
        )
    try:
        checked = WorkingState.model_validate(changes)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault["msg"] for fault in error.errors(include_input=False)}
        told = "; ".join(f"{name}: {message}" for name, message in sorted(wrong.items()))
        raise InvalidRecord(f"working state: {told}") from None
    return WorkingStateUpdate(at=at, changes=checked.model_dump(mode="json", include=set(changes)))


def check_changes(update: WorkingStateUpdate) -> None:
    """Check an update that comes from elsewhere; fields of a newer version may be there.

    Raises:
        InvalidRecord: A field has a wrong type.
    """
    known = {name: v for name, v in update.changes.items() if name in _working_state_fields}
    working_state_update(update.at, known)


def merge_working_state(state: WorkingState | None, update: WorkingStateUpdate) -> WorkingState:
    """Return the next version of the working state. What does not fit a field is left out: a
    record that was stored can be read, whoever wrote it."""
    known = {name: v for name, v in update.changes.items() if name in _working_state_fields}
    current = state or WorkingState()
    head = {"version": current.version + 1, "at": update.at}
    try:
        return WorkingState.model_validate(current.model_dump() | known | head)
    except ValidationError as error:
        wrong = {fault["loc"][0] for fault in error.errors()}
        kept = {name: v for name, v in known.items() if name not in wrong}
        return WorkingState.model_validate(current.model_dump() | kept | head)


# --- beside the chain -------------------------------------------------------------------------


class Partial(Value):
    """Speech under way; void once its writer has a turn of that role numbered above `after`."""

    role: Role
    text: str
    at: float
    after: int = 0
    message_id: str | None = None


class Partials(Value):
    """The partials of one writer, both sides, as its cell holds them."""

    v: Literal[1] = 1
    writer: str
    run: int
    partials: tuple[Partial, ...] = ()


class Renewal(Value):
    """The last renewal of an epoch: when, on the holder's clock."""

    v: Literal[1] = 1
    at: float


# --- what a reader gets -----------------------------------------------------------------------


class Briefing(Value):
    """What a new worker is given: a text for the model within a token budget, and its fields.

    `notes` is the text without the turns, `text` the whole. `turns` are the newest ones that
    fit, oldest first; `finished` are the tool calls since the first of them that ended, in the
    order in which they began. `actions` are those whose outcome is open. `omitted` counts by kind
    what did not fit. `estimated` says that tokens were estimated, not counted. `caller` is who
    calls: a participant's identity or telephone number, as the worker was told it, or the name
    of the first user turn that has one.

    `silence` is set in what `on_resume` and `on_handover` are given: for how many seconds nobody
    was there for the caller, up to that moment (see `Call.silence`); None if it is not known.
    """

    call_id: str
    run: int = 0
    caller: str | None = None
    fresh: bool = True
    notes: str = ""
    text: str = ""
    tokens: int = 0
    estimated: bool = True
    turns: tuple[Turn, ...] = ()
    working_state: WorkingState | None = None
    pointers: tuple[Pointer, ...] = ()
    actions: tuple[Action, ...] = ()
    finished: tuple[Action, ...] = ()
    outputs: tuple[Output, ...] = ()
    partials: tuple[Partial, ...] = ()
    userdata: JsonValue = None
    agent: str | None = None
    omitted: dict[str, int] = Field(default_factory=dict)
    unreadable: int = 0
    last_said_at: float | None = None
    silence: float | None = None

    @property
    def agent_words(self) -> str | None:
        """What the agent had really spoken of the turn in which it was cut off, all of it."""
        return self._under_way("assistant")

    @property
    def caller_words(self) -> str | None:
        """What the caller had said of the turn in which they were cut off."""
        return self._under_way("user")

    @property
    def cut_sentence(self) -> str | None:
        """The sentence in which the agent was cut off, up to the last word that was heard."""
        return None if self.agent_words is None else last_sentence(self.agent_words)

    @property
    def speaker(self) -> Literal["agent", "caller"] | None:
        """Who was speaking when it broke off; the one who began last if both were. None: nobody."""
        for partial in reversed(self.partials):
            if self._under_way(partial.role) is not None:
                return "agent" if partial.role == "assistant" else "caller"
        return None

    @property
    def awaits_answer(self) -> bool:
        """Whether the last word was the caller's, and the agent had not begun to answer."""
        said = [turn for turn in self.turns if turn.committed and turn.role in _SPOKEN]
        return bool(said) and said[-1].role == "user" and self.agent_words is None

    @property
    def may_have_happened(self) -> tuple[Action, ...]:
        """The external tool calls whose outcome is open: check them, never just repeat them."""
        return tuple(action for action in self.actions if action.action_class == "external")

    def _under_way(self, role: Role) -> str | None:
        """Return the newest words under way of this role. Those of a caller whom the agent has
        answered since are not."""
        answered = max((t.at for t in self.turns if t.role == "assistant"), default=-math.inf)
        for partial in reversed(self.partials):
            if partial.role == role and partial.text.strip():
                stale = role == "user" and partial.at < answered
                return None if stale else partial.text.strip()
        return None
