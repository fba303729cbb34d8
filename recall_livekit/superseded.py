"""Which queued records later ones have made void: what goes first when room is short."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .models import Record, Userdata, WorkingStateUpdate

__all__ = ["Superseded"]


class Superseded:
    """All userdata but the newest, and updates of the working state whose every field a later one
    has set again. Never turns, nor anything else that was said or done."""

    def __init__(self) -> None:
        """Know of no record."""
        self._userdata: int | None = None
        self._newest: dict[str, int] = {}
        """The number of the update that set each field last."""
        self._counts: dict[int, int] = {}
        """Of how many fields each update is that."""
        self._void: deque[int] = deque()

    def note(self, number: int, record: Record) -> None:
        """A record was queued under `number`."""
        if isinstance(record, Userdata):
            if self._userdata is not None:
                self._void.append(self._userdata)
            self._userdata = number
        elif isinstance(record, WorkingStateUpdate):
            self._update(number, record)

    def forget(self, acknowledged: int) -> None:
        """Records up to this number are stored: no room is to be had of them."""
        while self._void and self._void[0] <= acknowledged:
            self._void.popleft()

    def take(self) -> Sequence[int]:
        """Return the numbers that became void since this was asked, in no order."""
        void = list(self._void)
        self._void.clear()
        return void

    def _update(self, number: int, update: WorkingStateUpdate) -> None:
        for field in update.changes:
            if (before := self._newest.get(field)) is not None:
                self._counts[before] -= 1
                if not self._counts[before]:
                    del self._counts[before]
                    self._void.append(before)
            self._newest[field] = number
        if update.changes:
            self._counts[number] = len(update.changes)
