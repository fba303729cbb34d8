"""Whether LiveKit's server and the records can be reached: said once when not, and once again.
What fails for one room alone is that room's own."""

from __future__ import annotations

import logging
import math

from ..errors import KeyRefused, RecallError, RoomsUnavailable, StoreUnavailable
from ..rooms.protocol import Refused
from ..seams import Clock
from ..stores.keys import call_key
from .counts import Counts
from .settings import WatcherSettings

__all__ = ["Faults", "Reach"]

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


class Faults:
    """What fails over one room."""

    def __init__(self, call: str, reach: Reach, clock: Clock, settings: WatcherSettings) -> None:
        """All is well yet."""
        self._call = call
        self._reach = reach
        self._clock = clock
        self._settings = settings
        self._last: dict[type[RecallError], float] = {}

    def failed(self, error: RecallError) -> float:
        """Tell of an outage, or, as it begins, of what is wrong with this room alone; return after
        how many seconds to try again."""
        whole = isinstance(error, StoreUnavailable | KeyRefused | RoomsUnavailable)
        if whole and not isinstance(error, Refused):
            self._reach.failed(error)
            return self._settings.outage_wait
        if self._is_old(type(error)):
            return self._settings.sweep_interval
        logger.error("call %s cannot be watched (%s): trying again", call_key(self._call), error)
        return self._settings.outage_wait  # it may have been a moment's

    def _is_old(self, kind: type[RecallError]) -> bool:
        """Whether this fault has gone on since the last try, whatever the pause was for."""
        now = self._clock.monotonic()
        since = now - self._last.get(kind, -math.inf)
        self._last[kind] = now
        return since < 2 * max(self._settings.sweep_interval, self._settings.standby_retry_last)
