"""Every error of Recall, drawn once. Each says what its receiver does next.

::

    RecallError
    ├── InvalidInput          fix the call: nothing was written
    │   ├── InvalidCallId
    │   ├── InvalidRecord
    │   └── InvalidSettings
    ├── Conflict              re-read, fold, decide again (stays inside the engine)
    ├── StoreError
    │   ├── StoreUnavailable  retry the same thing: its outcome is unknown
    │   ├── StoreUnusable     page someone: the data or the directory needs a person
    │   └── KeyRefused        give it a key that the server knows; rotated ones are tried again
    │       └── RoleTooLow    the key is known, but not for this
    ├── RoomsUnavailable      retry: LiveKit's server did not answer, or refused
    ├── Held                  wait as a standby, steal, or leave
    ├── Fenced                stop writing: another writer has the call
    │   └── ReadOnly          the same, refused on this worker before it was sent
    ├── Gap                   send again from the number that it names
    ├── Erased                stop for ever: the call's content was erased
    ├── UnknownRun            the record names a run that the chain does not have
    ├── OutputMissing         do without it: nothing is kept under this ref, or no more
    ├── OutboxFull            slow down: a limit of this worker is reached
    └── Closed                the live call or the store was closed
"""

from __future__ import annotations

__all__ = [
    "Closed",
    "Conflict",
    "Erased",
    "Fenced",
    "Gap",
    "Held",
    "InvalidCallId",
    "InvalidInput",
    "InvalidRecord",
    "InvalidSettings",
    "KeyRefused",
    "OutboxFull",
    "OutputMissing",
    "ReadOnly",
    "RecallError",
    "RoleTooLow",
    "RoomsUnavailable",
    "StoreError",
    "StoreUnavailable",
    "StoreUnusable",
    "UnknownRun",
]


class RecallError(Exception):
    """Whatever Recall raises on purpose."""


class InvalidInput(RecallError, ValueError):
    """The caller passed something that can never work; nothing was written."""


class InvalidCallId(InvalidInput):
    """A call id is any string of 1 to 256 bytes in UTF-8."""


class InvalidRecord(InvalidInput):
    """A record has a field that does not exist, a wrong type, or is over its size."""


class InvalidSettings(InvalidInput):
    """A setting is outside its range, or an address names no known store."""


class Conflict(RecallError):
    """Something is there already, or is not the version that was named."""


class StoreError(RecallError):
    """The store could not do its work."""


class StoreUnavailable(StoreError):
    """The store did not answer, is busy or is full; whether it acted is unknown. Retry."""


class StoreUnusable(StoreError):
    """The directory or file cannot be used as it is: a person has to look."""


class KeyRefused(StoreError):
    """The Recall server does not know this key (any more), or was given none."""


class RoleTooLow(KeyRefused):
    """The key is known, but its role does not allow this."""


class RoomsUnavailable(RecallError):
    """LiveKit's server could not be asked, or refused; whether it acted is unknown."""


class Held(RecallError):
    """A live holder has the call."""

    def __init__(self, holder: str, epoch: int) -> None:
        super().__init__(f"the call is held by writer {holder} at epoch {epoch}")
        self.holder = holder
        self.epoch = epoch


class Fenced(RecallError):
    """The writer does not hold the lease any more; nothing was written under it."""

    def __init__(self, epoch: int, holder: str | None = None) -> None:
        super().__init__(f"fenced: the call is at epoch {epoch}, holder {holder or 'nobody'}")
        self.epoch = epoch
        self.holder = holder


class ReadOnly(Fenced):
    """This worker knows that it does not hold the lease, and refuses before sending."""

    def __init__(self, epoch: int, state: str) -> None:
        super().__init__(epoch)
        self.args = (f"this worker does not have the call (it is {state}): not recorded",)


class Gap(RecallError):
    """Records arrived out of order: the chain expects `expected` from this writer next."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"expected record {expected} of this writer, got {got}")
        self.expected = expected
        self.got = got


class Erased(RecallError):
    """The call, or the room it was in, was erased; nothing of it is written again."""


class UnknownRun(RecallError):
    """A provisional record names a run that was never opened."""


class OutputMissing(RecallError):
    """No output is kept under this ref: it never was, was lost, or was erased."""


class OutboxFull(RecallError):
    """The outbox has reached its limit; what is refused is counted, not forgotten."""


class Closed(RecallError):
    """Used after it was closed."""
