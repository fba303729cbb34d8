"""Whether LiveKit's server and the records can be reached: said once when not, and once again."""

from __future__ import annotations

import logging

from ..errors import RecallError, RoomsUnavailable
from ..seams import Clock
from .counts import Counts

__all__ = ["Reach"]

logger = logging.getLogger("recall_livekit.watcher")

ROOMS, RECORDS = "LiveKit's server", "the records"
_ARE_BACK = {ROOMS: "LiveKit's server is back", RECORDS: "the records are back"}


class Reach:
    """What did not answer last, and since when."""

    def __init__(self, clock: Clock, counts: Counts) -> None:
        """Both are taken to answer."""
        self._clock = clock
        self._counts = counts
        self._lost: dict[str, tuple[float, RecallError]] = {}

    @property
    def lacks(self) -> list[str]:
        """What cannot be reached, and why."""
        return [f"{what} cannot be reached: {error}" for what, (_, error) in self._lost.items()]

    def failed(self, error: RecallError) -> None:
        """One of the two did not answer: `RoomsUnavailable` tells which."""
        what = ROOMS if isinstance(error, RoomsUnavailable) else RECORDS
        if what not in self._lost:
            self._lost[what] = (self._clock.monotonic(), error)
            logger.warning("%s cannot be reached (%s): trying again", what, error)
            self._counts.rooms_outages += what is ROOMS
            self._counts.records_outages += what is RECORDS
        self._count()

    def rooms_answered(self) -> None:
        """LiveKit's server did."""
        self._answered(ROOMS)

    def records_answered(self) -> None:
        """The records did."""
        self._answered(RECORDS)

    def _answered(self, what: str) -> None:
        if (lost := self._lost.pop(what, None)) is not None:
            logger.warning("%s after %.1f s", _ARE_BACK[what], self._clock.monotonic() - lost[0])
            self._count()

    def _count(self) -> None:
        self._counts.rooms_reached = ROOMS not in self._lost
        self._counts.records_reached = RECORDS not in self._lost
