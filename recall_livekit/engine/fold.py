"""The fold of a chain: everything that is known about a call, from its entries alone.

Applying an entry is pure: no clock, no I/O. Two readers that applied the same entries agree.
"""

from __future__ import annotations

from collections import deque

from ..models import (
    Action,
    Dropped,
    Handoff,
    Output,
    Pointer,
    Record,
    Turn,
    Unreadable,
    Userdata,
    WorkingStateUpdate,
    merge_working_state,
)
from .entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    StubEntry,
    UnknownEntry,
)
from .folded import Folded, RunView, Writer, sid_hash

__all__ = ["Fold"]

OPEN_ACTIONS = 200
FINISHED_ACTIONS = 20
"""The newest tool calls that ended are shown again, each cut to `SHOWN_CHARS` of its arguments and
of its result."""
SHOWN_CHARS = 1000
OUTPUTS = 50
POINTERS = 200
TURN_CHARS = 50
"""What a turn costs a reader beyond its text."""
ATTEMPTS = 16
"""How many granted attempts of a writer are known: one of them that comes late gets no lease."""
RECENT_WRITERS = 4
"""Whose partials a reader looks at: the holder that died, and who tried to follow it."""


class Fold:
    """The mutable fold. Its fields are those of `Folded`.

    `lease` is the current epoch's lease while it is open: None before the first, after a
    release, and after an erase.
    """

    def __init__(self, retained_chars: int, state: Folded | None = None) -> None:
        """Begin with nothing, or with a snapshot's value."""
        state = state or Folded()
        self.retained_chars = retained_chars
        self.content = 0
        """Grows whenever what a reader is shown changes."""
        self.position = state.position
        self.last_id = state.last_id
        self.epoch = state.epoch
        self.lease = state.lease
        self.lease_position = state.lease_position
        self.run = state.run
        self.erased_run = state.erased_run
        self.sids = set(state.sids)
        self.erased_sids = set(state.erased_sids)
        self.erases = list(state.erases)
        self.writers = dict(state.writers)
        self.waiting = list(state.waiting)
        self.turns = deque(state.turns)
        self.turn_chars = sum(map(_retained, state.turns))
        self.turn_count = state.turn_count
        self.run_turns = state.run_turns
        self.working_state = state.working_state
        self.userdata = state.userdata
        self.pointers = dict(state.pointers)
        self.actions = dict(state.actions)
        self.begun_by = dict(state.begun_by)
        self.finished = deque(state.finished, maxlen=FINISHED_ACTIONS)
        self.outputs = deque(state.outputs, maxlen=OUTPUTS)
        self.agent = state.agent
        self.recent = list(state.recent)
        self.turn_anchor = state.turn_anchor
        self.unreadable = state.unreadable
        self.dropped = dict(state.dropped)

    def value(self) -> Folded:
        """Return the fold as a value that later entries do not change."""
        return Folded.model_construct(
            v=1,
            position=self.position,
            last_id=self.last_id,
            epoch=self.epoch,
            lease=self.lease,
            lease_position=self.lease_position,
            run=self.run,
            erased_run=self.erased_run,
            sids=tuple(sorted(self.sids)),
            erased_sids=tuple(sorted(self.erased_sids)),
            erases=tuple(self.erases),
            writers=dict(self.writers),
            waiting=tuple(self.waiting),
            turns=tuple(self.turns),
            turn_count=self.turn_count,
            run_turns=self.run_turns,
            working_state=self.working_state,
            userdata=self.userdata,
            pointers=dict(self.pointers),
            actions=dict(self.actions),
            begun_by=dict(self.begun_by),
            finished=tuple(self.finished),
            outputs=tuple(self.outputs),
            agent=self.agent,
            recent=tuple(self.recent),
            turn_anchor=self.turn_anchor,
            unreadable=self.unreadable,
            dropped=dict(self.dropped),
        )

    def copy(self) -> Fold:
        """Return a fold of its own, equal to this one."""
        return Fold(self.retained_chars, self.value())

    # --- questions ----------------------------------------------------------------------------

    def last_number(self, writer: str) -> int:
        """Return the number of the writer's newest record in the chain, waiting ones included."""
        known = self.writers.get(writer)
        return known.last if known else 0

    def holds(self, writer: str, epoch: int) -> bool:
        """Whether `writer` may append under `epoch` to the entries folded so far (rule 1)."""
        return self.epoch == epoch and self.lease is not None and self.lease.writer == writer

    def with_waiting(self) -> Fold:
        """Return the fold as a reader is shown it: waiting records last (rule 7)."""
        if not self.waiting:
            return self
        shown = self.copy()
        shown._adopt()
        return shown

    # --- entries ------------------------------------------------------------------------------

    def apply(self, entry: Entry, data_id: str) -> None:
        """Count the entry at the next position; `data_id` is its `entry_id`."""
        match entry:
            case RecordsEntry():
                self._records(entry)
            case LeaseEntry():
                self._lease(entry)
            case ReleaseEntry():
                self._release(entry)
            case RunEntry():
                self._open_run(entry)
            case EraseEntry():
                self._erase(entry)
            case StubEntry():
                self._stub(entry)
            case UnknownEntry():
                self._unknown(entry)
        self.position += 1
        self.last_id = data_id

    def _records(self, entry: RecordsEntry) -> None:
        self._number(entry.writer, entry.last)
        if entry.provisional_run is None:
            self._count(entry, self.lease.run if self.lease else 0, late=False)
        elif self._must_wait(entry):
            self.content += 1
            self.waiting.append((self.position, entry))
        else:
            self._count(entry, entry.provisional_run, late=self._is_late(entry))

    def _must_wait(self, entry: RecordsEntry) -> bool:
        """Rule 7: another writer may still write under the epoch that it read."""
        return (
            self.lease is not None
            and self.lease.epoch == entry.epoch
            and self.lease.writer != entry.writer
        )

    def _is_late(self, entry: RecordsEntry) -> bool:
        """Whether another writer may have held the call since the epoch that it read."""
        own_next = self.epoch == entry.epoch + 1 and self.holds(entry.writer, self.epoch)
        return entry.epoch < self.epoch and not own_next

    def _adopt(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, entry in waiting:
            self._count(entry, entry.provisional_run or 0, late=False)

    def _lease(self, entry: LeaseEntry) -> None:
        self._adopt()
        self._settle_actions(entry.writer)
        self._number(entry.writer, 0)
        known = self.writers[entry.writer]
        attempts = (*known.attempts, entry.attempt)[-ATTEMPTS:]
        self.writers[entry.writer] = known.model_copy(update={"attempts": attempts})
        self.epoch = entry.epoch
        self.lease = entry
        self.lease_position = self.position
        if self.run and self.run.number == entry.run:
            self.run = self.run.model_copy(update={"outcome": None, "outcome_at": None})

    def _settle_actions(self, holder: str) -> None:
        """What another writer had running is over: a pure one is abandoned, an external one may
        have happened, an idempotent one stays open with its key."""
        for key, action in list(self.actions.items()):
            if action.status != "started" or self.begun_by.get(key) == holder:
                continue
            self.content += 1
            if action.action_class == "pure":
                self._close_action(key)
            elif action.action_class == "external":
                self.actions[key] = action.model_copy(update={"status": "unknown"})

    def _release(self, entry: ReleaseEntry) -> None:
        if self.lease and self.run and self.run.number == self.lease.run:
            self.run = self.run.model_copy(
                update={"outcome": entry.outcome, "outcome_at": entry.at}
            )
        self.lease = None
        self._adopt()

    def _open_run(self, entry: RunEntry) -> None:
        """Another use of the call id: it closes the epoch of the one before (rule 5)."""
        self.lease = None
        self._adopt()
        self._number(entry.writer, 0)
        self.run = RunView(
            number=entry.run,
            room_sid=entry.room_sid,
            caller=entry.caller,
            opened_at=entry.at,
        )
        if entry.room_sid:
            self.sids.add(sid_hash(entry.room_sid))
        self._forget_run()

    def _forget_run(self) -> None:
        """An earlier run stays in the chain and is not briefed."""
        self.content += 1
        self.recent = self.recent[-1:]
        self.turn_anchor = -1
        self.turns.clear()
        self.turn_chars = 0
        self.run_turns = 0
        self.working_state = None
        self.userdata = None
        self.agent = None
        self.pointers.clear()
        self.actions.clear()
        self.begun_by.clear()
        self.finished.clear()
        self.outputs.clear()

    def _erase(self, entry: EraseEntry) -> None:
        self.epoch = entry.epoch
        self.lease = None
        self.waiting = []
        self.erased_sids |= self.sids
        self.sids.clear()
        # as a reader of the stubs will have it: they do not tell what was in them
        self.turn_count = self.unreadable = 0
        self.dropped.clear()
        if self.run:
            self.erased_run = self.run.number
            self.run = RunView(number=self.run.number, outcome="erased", outcome_at=entry.at)
        self.erases.append(self.position)
        self._forget_run()

    def _stub(self, entry: StubEntry) -> None:
        if entry.writer:
            self._number(entry.writer, entry.first + entry.count - 1 if entry.count else 0)
        if entry.was == "run" and entry.run is not None:
            self.run = RunView(number=entry.run, outcome="erased", outcome_at=entry.at)
        if entry.sid_hash:
            self.erased_sids.add(entry.sid_hash)
        if entry.was in ("lease", "erase"):
            self.epoch = entry.epoch
        self.lease = None

    def _unknown(self, entry: UnknownEntry) -> None:
        self.content += 1
        self.unreadable += 1
        if entry.epoch > self.epoch:
            self.epoch = entry.epoch
            self.lease = None

    # --- records ------------------------------------------------------------------------------

    def _number(self, writer: str, last: int) -> None:
        if not self.recent or self.recent[-1] != writer:
            others = [other for other in self.recent if other != writer]
            self.recent = [*others[-RECENT_WRITERS + 1 :], writer]
        known = self.writers.get(writer)
        if known is None:
            self.writers[writer] = Writer(last=last, anchor=self.position)
        elif last > known.last:
            self.writers[writer] = known.model_copy(update={"last": last})

    def _count(self, entry: RecordsEntry, run: int, *, late: bool) -> None:
        self.content += 1
        current = self.run is not None and self.run.number == run and run > self.erased_run
        for number, record in enumerate(entry.records, entry.first):
            if isinstance(record, Turn):
                self.turn_count += 1
            if isinstance(record, Unreadable):
                self.unreadable += 1
            elif current:
                self._record(record, entry.writer, number, late=late)

    def _record(self, record: Record, writer: str, number: int, *, late: bool) -> None:
        self._said(record.at)
        match record:
            case Turn():
                self._turn(record, writer, number, late=late)
            case WorkingStateUpdate() if not late:
                self.working_state = merge_working_state(self.working_state, record)
            case Userdata() if not late:
                self.userdata = record.data
            case Pointer() if not late:
                self._pointer(record)
            case Handoff() if not late:
                self.agent = record.agent
            case Action():
                self._action(record, writer)
            case Output():
                self._output(record)
            case Dropped():
                self._drop(record.of)
            case _:
                pass  # late working states, userdata and handoffs: history, no state (rule 7)

    def _output(self, output: Output) -> None:
        """What is said again of a ref (that it is missing) replaces what was said before."""
        for place, known in enumerate(self.outputs):
            if known.ref == output.ref:
                self.outputs[place] = output
                return
        self.outputs.append(output)

    def _said(self, at: float) -> None:
        if self.run and (self.run.said_at is None or at > self.run.said_at):
            self.run = self.run.model_copy(update={"said_at": at})

    def _pointer(self, pointer: Pointer) -> None:
        if pointer.name in self.pointers or len(self.pointers) < POINTERS:
            self.pointers[pointer.name] = pointer
        else:
            self._drop("pointer")

    def _drop(self, kind: str) -> None:
        self.dropped[kind] = self.dropped.get(kind, 0) + 1

    def _turn(self, turn: Turn, writer: str, number: int, *, late: bool) -> None:
        self.run_turns += 1
        self.turns.append(turn.model_copy(update={"seq": self.turn_count, "late": late}))
        self.turn_chars += _retained(turn)
        while self.turn_chars > self.retained_chars and len(self.turns) > 1:
            self.turn_chars -= _retained(self.turns.popleft())
        known = self.writers[writer]
        self.turn_anchor = known.anchor
        if turn.role in ("user", "assistant"):
            self.writers[writer] = known.model_copy(update={turn.role: number})
        if turn.agent and not late:
            self.agent = turn.agent
        if turn.role == "user" and turn.name and self.run and self.run.caller is None:
            self.run = self.run.model_copy(update={"caller": turn.name})

    def _action(self, action: Action, writer: str) -> None:
        if action.status not in ("started", "unknown"):
            self._finish(action)
            self._close_action(action.key)
        elif action.key in self.actions or len(self.actions) < OPEN_ACTIONS:
            self.actions[action.key] = action
            self.begun_by[action.key] = writer
        else:
            self._drop("action")

    def _finish(self, end: Action) -> None:
        """Keep how it went with how it began: its beginning alone may tell the arguments. What is
        said again replaces what was said, but nobody takes back that it was done."""
        if end.status == "abandoned":
            return
        place, known = next(
            ((n, one) for n, one in enumerate(self.finished) if one.key == end.key), (-1, None)
        )
        began = self.actions.get(end.key) or known or end
        told = end.model_dump(include={"status", "result", "result_ref", "unrecorded"})
        arguments = end.arguments if end.arguments != "{}" else began.arguments
        cut = {"arguments": arguments[:SHOWN_CHARS], "result": (end.result or "")[:SHOWN_CHARS]}
        if known is None:
            self.finished.append(began.model_copy(update=told | cut))
        elif (known.status, end.status) != ("done", "failed"):
            self.finished[place] = began.model_copy(update=told | cut)

    def _close_action(self, key: str) -> None:
        self.actions.pop(key, None)
        self.begun_by.pop(key, None)


def _retained(turn: Turn) -> int:
    return len(turn.content) + TURN_CHARS
