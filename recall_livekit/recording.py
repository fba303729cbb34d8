"""What a worker records on its call: checked and queued at once; nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import anyio
from pydantic import JsonValue

from .checks import checked_record, storable_name, storable_text
from .errors import Closed, ReadOnly
from .keeper import LeaseKeeper
from .models import (
    Action,
    ActionClass,
    ActionStatus,
    Handoff,
    Output,
    Partial,
    Pointer,
    PointerType,
    RecordBase,
    Role,
    Turn,
    Userdata,
    WorkingStateChanges,
    WorkingStateUpdate,
    working_state_update,
)
from .outbox import Outbox
from .seams import Clock
from .sender import Sender
from .standing import CallState

__all__ = ["Recording"]


class Recording:
    """The part of a live call that takes records. `Call` is the whole."""

    _clock: Clock
    _keeper: LeaseKeeper
    _outbox: Outbox
    _sender: Sender
    _closing: anyio.Event

    @property
    def writable(self) -> bool:
        """Whether this worker records what is said: it holds the call, or is about to."""
        return self._keeper.state in (CallState.READING, CallState.ACQUIRING, CallState.HOLDING)

    def record_turn(
        self,
        role: Role,
        content: str,
        *,
        name: str | None = None,
        message_id: str | None = None,
        agent: str | None = None,
        interrupted: bool = False,
        committed: bool = True,
        at: float | None = None,
    ) -> int:
        """Queue one message and return its number. Text beyond `RECORD_CHARS` is cut there.

        Not `committed`: it was said, and is no part of the conversation that the model is given.

        Raises:
            ReadOnly: Another worker has the call.
            OutboxFull: Too much waits already.
            Closed: The call was closed.
        """
        self._sender.spoken(role)
        return self._queue(
            Turn,
            at=at,
            role=role,
            content=storable_text(content),
            name=name,
            message_id=message_id,
            agent=agent,
            interrupted=interrupted,
            committed=committed,
        )

    def update_working_state(self, **changes: Unpack[WorkingStateChanges]) -> int:
        """Queue changes of the working state; return the number.

        Raises:
            InvalidRecord: A field does not exist or has a wrong type.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        update = working_state_update(self._clock.now(), changes)
        return self._queue(WorkingStateUpdate, changes=update.changes)

    def milestone(self, text: str, *, progress: str | None = None, step: int | None = None) -> int:
        """Queue that something is done for good: the working state's `last_milestone`, and with it
        its `progress` and `step` if they are given. Return the number.

        Raises:
            InvalidRecord: A text is no str, `step` no int.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        changes: WorkingStateChanges = {"last_milestone": text}
        if progress is not None:
            changes["progress"] = progress
        if step is not None:
            changes["step"] = step
        return self.update_working_state(**changes)

    def set_pointer(self, name: str, type: PointerType, fields: Mapping[str, str]) -> int:  # noqa: A002
        """Queue where work lives outside the records: a branch, an object in a store, a booking's
        number. One of the same name replaces it. Return the number.

        Args:
            name: What it is called, for instance "booking".
            type: "git_ref", "object", "env", "external" or "process".
            fields: What finds it again; names and values are texts.

        Raises:
            InvalidRecord: The type does not exist, a field is no text, or it is too large.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        return self._queue(Pointer, name=storable_text(name), type=type, fields=fields)

    def record_handoff(self, agent: str, *, previous: str | None = None) -> int:
        """Queue that another agent of the session is the active one from here on; return the
        number. Both by their labels, of which the first 128 characters are kept.

        Raises:
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        return self._queue(Handoff, agent=storable_name(agent), previous=storable_name(previous))

    def record_userdata(self, data: JsonValue) -> int:
        """Queue the application's own state, whole; return the number.

        Raises:
            InvalidRecord: It is no JSON value, too deep, or larger than 2 x `RECORD_CHARS`.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        return self._queue(Userdata, data=data)

    def record_action(
        self,
        tool: str,
        *,
        key: str | None = None,
        action_class: ActionClass = "external",
        status: ActionStatus = "started",
        arguments: str = "{}",
        result: str | None = None,
        call_id: str | None = None,
    ) -> str:
        """Queue the beginning of a tool call, or, with its `key`, how it went; return the key.

        Raises:
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        key = key or f"{self._keeper.writer}-{self._outbox.last + 1}"
        self._queue(
            Action,
            key=key,
            tool=tool,
            action_class=action_class,
            status=status,
            arguments=storable_text(arguments),
            result=None if result is None else storable_text(result),
            call_id=call_id,
        )
        return key

    def partial(self, role: Role, text: str, *, message_id: str | None = None) -> None:
        """Note speech under way; the newest is written at most every `partial_interval`."""
        if self.writable:
            self._sender.partial(
                Partial(
                    role=role,
                    text=storable_text(text),
                    at=self._clock.now(),
                    after=self._outbox.last,
                    message_id=message_id,
                )
            )

    def _record_output(self, output: Output) -> None:
        told = output.model_dump(exclude={"v", "kind", "at"})
        self._queue(Output, at=output.at, **told)

    def _queue(
        self, kind: type[RecordBase], *, at: float | None = None, late: bool = False, **what: object
    ) -> int:
        self._check_writable(late=late)
        return self._outbox.add(checked_record(kind, self._clock.now() if at is None else at, what))

    def _check_writable(self, *, late: bool = False) -> None:
        """With `late` what belongs to a lease that was lost may be written, as a late record."""
        if self._keeper.state is CallState.CLOSED or self._closing.is_set():
            raise Closed("this call was closed on this worker")
        late = late and self._keeper.lost not in (None, "erased")
        if not self.writable and not late:
            raise ReadOnly(self._keeper.epoch, self._keeper.state.value)
