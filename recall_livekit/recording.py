"""What a worker records on its call: checked and queued at once; nothing here waits."""

from __future__ import annotations

from typing import Unpack

import anyio
from pydantic import JsonValue

from .checks import checked_record, storable_text
from .errors import Closed, ReadOnly
from .keeper import LeaseKeeper
from .models import (
    Action,
    ActionClass,
    ActionStatus,
    Partial,
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
        at: float | None = None,
    ) -> int:
        """Queue one message and return its number. Text beyond `RECORD_CHARS` is cut there.

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
        )

    def update_working_state(self, **changes: Unpack[WorkingStateChanges]) -> int:
        """Queue changes of the working state; return the number.

        Raises:
            InvalidRecord: A field does not exist or has a wrong type.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
        """
        update = working_state_update(self._clock.now(), changes)
        return self._queue(WorkingStateUpdate, changes=update.changes)

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

    def _queue(self, kind: type[RecordBase], *, at: float | None = None, **what: object) -> int:
        if self._keeper.state is CallState.CLOSED or self._closing.is_set():
            raise Closed("this call was closed on this worker")
        if not self.writable:
            raise ReadOnly(self._keeper.epoch, self._keeper.state.value)
        return self._outbox.add(checked_record(kind, self._clock.now() if at is None else at, what))
