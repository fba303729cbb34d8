"""Whether a holder lives: evidence, never safety (rules 10 and 11)."""

from __future__ import annotations

from enum import Enum

import anyio
from pydantic import ValidationError

from ..models import Renewal
from ..seams import Clock
from ..settings import Settings
from ..stores.base import Cell, Locks, Store
from .entries import LeaseEntry
from .fold import Fold
from .streams import StreamState, read_stream, stream_cell

__all__ = ["Liveness", "Witness", "renewal_cell"]


class Liveness(Enum):
    """What the evidence says of the current lease."""

    FREE = "free"
    """Nobody holds it: never taken, released or erased."""

    DEAD = "dead"
    """The holder's process is gone: its lock is free."""

    BROKEN = "broken"
    """The holder's stream broke and stayed so: it is dead, or cut off from the server alone."""

    LAPSED = "lapsed"
    """The holder did not renew in time."""

    LIVE = "live"


def renewal_cell(epoch: int) -> str:
    """Return the name of an epoch's renewal cell."""
    return f"renewal/{epoch}"


class Witness:
    """One engine's own observations of one call's holder; they are per epoch (rule 10)."""

    def __init__(self, store: Store, call: str, clock: Clock, settings: Settings) -> None:
        """Have seen nothing yet."""
        self._store = store
        self._locks = store if isinstance(store, Locks) else None
        self._call = call
        self._clock = clock
        self._settings = settings
        self._stream: StreamState | None = None
        self._broken_at: float | None = None
        self._epoch = -1
        self._version: str | None = None
        self._since = 0.0
        self._saw_change = False
        self._looked_at = clock.monotonic()
        self._alive_at: float | None = None
        self.renewed_at = 0.0

    @property
    def doubtful(self) -> bool:
        """Whether a holder that was seen to be live has a stream that broke: its grace goes on."""
        return self._broken_at is not None

    def saw_alive(self, seconds: float) -> bool:
        """Whether a holder was seen to live within `seconds` on this worker's own clock."""
        return self._alive_at is not None and self._clock.monotonic() - self._alive_at <= seconds

    async def look(self, fold: Fold) -> Liveness:
        """Return what the evidence says now.

        A holder whose lock is free is dead. While its lock is held, only silence for a TTL on
        this worker's own clock counts; without a lock to go by a passed deadline is enough,
        unless a renewal was seen to change within the TTL (rule 11). A stream that broke is
        given `disconnect_grace` on this worker's own clock, unless the server that saw it break
        did so. One that nobody saw break, and whose deadline is passed, has `return_grace`: the
        server was away, and its holder may be about to come back.
        """
        lease = fold.lease
        if lease is None:
            return Liveness.FREE
        self._observe(lease, await self._store.get_cell(self._call, renewal_cell(lease.epoch)))
        locked = await self._locked(lease)
        if locked is False:
            return Liveness.DEAD
        if lease.stream and await self._stream_broke(lease.epoch):
            return Liveness.BROKEN
        if lease.stream:
            self._allow_for_standstill(lease)
        silent = self._clock.monotonic() - self._since
        if silent >= lease.ttl:
            return Liveness.LAPSED
        passed = self._clock.now() > self.renewed_at + lease.ttl
        patient = lease.stream and silent < self._settings.return_grace
        if passed and not locked and not self._saw_change and not patient:
            return Liveness.LAPSED
        self._alive_at = self._clock.monotonic()
        return Liveness.LIVE

    def _allow_for_standstill(self, lease: LeaseEntry) -> None:
        """Who did not look for a while may itself have stood still, with the holder's signs of
        life in its sockets: they have `return_grace` to be read."""
        now, grace = self._clock.monotonic(), self._settings.return_grace
        if now - self._looked_at > grace:
            self._since = max(self._since, now - lease.ttl + grace)
        self._looked_at = now

    async def wait(self, fold: Fold, seconds: float) -> None:
        """Return after `seconds`, or as soon as the holder's lock is free."""
        lease = fold.lease
        if self._locks is None or lease is None or lease.lock is None:
            await self._clock.sleep(seconds)
            return
        with anyio.move_on_after(seconds):
            await self._locks.wait_free(lease.lock)

    async def _locked(self, lease: LeaseEntry) -> bool | None:
        if self._locks is None or lease.lock is None:
            return None
        return await self._locks.held(lease.lock)

    async def _stream_broke(self, epoch: int) -> bool:
        """Whether the holder's stream is gone. One that was opened anew is a sign of life."""
        seen = read_stream(await self._store.get_cell(self._call, stream_cell(epoch)))
        if seen != self._stream:
            came_back = self._stream is not None and seen is not None and seen.state == "open"
            self._stream, now = seen, self._clock.monotonic()
            self._broken_at = now if seen is not None and seen.state != "open" else None
            if came_back:
                self._saw_change, self._since = True, now
        if seen is None or self._broken_at is None:
            return False
        waited = self._clock.monotonic() - self._broken_at
        return seen.state == "gone" or waited >= self._settings.disconnect_grace

    def _observe(self, lease: LeaseEntry, cell: Cell | None) -> None:
        version = cell.version if cell else None
        if lease.epoch != self._epoch:
            self._epoch, self._saw_change = lease.epoch, False
            self._stream = self._broken_at = None
        elif version == self._version:
            return
        else:
            self._saw_change = True
        self._version, self._since = version, self._clock.monotonic()
        self.renewed_at = max(lease.at, _renewed_at(cell))


def _renewed_at(cell: Cell | None) -> float:
    if cell is None:
        return 0.0
    try:
        return Renewal.model_validate_json(cell.value).at
    except ValidationError:
        return 0.0
