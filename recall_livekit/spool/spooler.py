"""A live call's copy of its outbox on the disk, for as long as the store does not answer."""

from __future__ import annotations

import logging
import math

import anyio
from anyio.lowlevel import checkpoint

from ..errors import Conflict, OutboxFull, RecallError, StoreUnavailable
from ..keeper import LeaseKeeper
from ..models import Outcome
from ..outbox import Outbox
from ..standing import CallState
from .format import Facts, Header, LostTenure, facts_line, header_line, record_line
from .spool import Spool

__all__ = ["Spooler"]

logger = logging.getLogger("recall_livekit")

TOLD_EVERY = 60.0
"""Seconds until trouble that went and came again is said again."""
WORTH_IT = 1 / 8
"""A full file is written anew when so much of it has become void."""


class Spooler:
    """Writes what waits in one writer's outbox to one file, and deletes it when nothing waits.

    The outbox goes on in memory whatever the disk does: a fault of the disk is said once, and
    tried again. Until `finish` the file is this process's alone.
    """

    def __init__(self, spool: Spool, header: Header, keeper: LeaseKeeper, outbox: Outbox) -> None:
        """Write nothing yet: while the store answers, nothing touches the disk."""
        self._spool = spool
        self._settings = spool.settings
        self._header = header
        self._keeper = keeper
        self._outbox = outbox
        self._file = spool.file(header)
        self._exists = False
        self._size = 0
        self._facts = Facts()
        self._base = 0
        self._made_room = 0
        self._void_enough = 1
        """So many records must be void for the file to be written anew."""
        self._closed: tuple[Outcome | None, float] = (None, 0.0)
        self._queued_at: tuple[int, float] | None = None
        self._trouble: str | None = None
        self._told_until = -math.inf
        self.upto = 0
        """The number up to which this writer's records are on the disk, or stored."""

    @property
    def spooled(self) -> int:
        """How many records that are not stored yet are durable on this machine."""
        return max(0, min(self.upto, self._outbox.last) - self._outbox.acknowledged)

    async def run(self) -> None:
        """Spool whenever it is called for, for as long as the call lives."""
        while True:
            if self._exists or self._is_due():
                await self._keep_up()
            with anyio.move_on_after(self._settings.spool_after / 4 if self._outbox.lag else None):
                await self._outbox.wait_change()

    def _is_due(self) -> bool:
        """Whether a unit could not be stored, or one record has waited for too long."""
        outbox, now = self._outbox, self._spool.clock.monotonic()
        if not outbox.lag:
            self._queued_at = None
            return False
        if self._queued_at is None or self._queued_at[0] <= outbox.acknowledged:
            self._queued_at = (outbox.last, now)
        return outbox.failing or now - self._queued_at[1] >= self._settings.spool_after

    async def _keep_up(self) -> None:
        """Return when nothing is left to be written; the file is deleted when nothing waits."""
        pause = self._settings.retry_first
        while self._outbox.lag or self._exists:
            try:
                if not self._outbox.lag:
                    await self._delete()
                elif not await self._write():
                    return
            except RecallError as error:
                self._tell(error)
                await self._spool.clock.sleep(pause)
                pause = min(2 * pause, self._settings.retry_last)
            else:
                self._trouble, pause = None, self._settings.retry_first

    async def finish(self, outcome: Outcome | None) -> None:
        """Write what still waits, and how the call closed; then any process may drain it."""
        self._closed = (outcome, self._spool.clock.now())
        try:
            while self._outbox.lag and await self._write():
                pass
            if self._exists and not self._outbox.lag:
                await self._delete()
        except RecallError as error:
            self._tell(error)
        finally:
            with anyio.CancelScope(shield=True):
                await self._let_go()

    # --- the file -------------------------------------------------------------------------------

    async def _write(self) -> bool:
        """Write the next batch and what has changed; False if there is nothing new."""
        outbox, facts = self._outbox, self._facts_now()
        known = facts.model_copy(update={"acknowledged": self._facts.acknowledged}) == self._facts
        replaced, batch = outbox.markers(self.upto), outbox.after(self.upto)
        if not (batch or (self._exists and (replaced or not known))):
            return False
        lines = [record_line(number, record) for number, record in (*replaced, *batch)]
        if facts != self._facts or not self._exists:
            lines.insert(0, facts_line(facts))
        await self._put(b"".join(lines), batch[-1][0] if batch else self.upto)
        self._facts = facts
        outbox.replaced.difference_update(number for number, _ in replaced)
        return True

    async def _put(self, data: bytes, upto: int) -> None:
        if not self._exists:
            await self._create(header_line(self._header) + data, upto)
            return
        try:
            if self._size + len(data) > self._settings.spool_call_bytes:
                raise OutboxFull("the spool file of this call has reached spool_call_bytes")
            await self._file.append(self._size, data)
        except OutboxFull as full:
            await self._shrink(full)
        except Conflict as error:
            self._forget()
            raise StoreUnavailable(f"somebody deleted a spool file: {error}") from error
        else:
            self._size += len(data)
            self.upto = max(self.upto, upto)

    async def _create(self, data: bytes, upto: int) -> None:
        base = self._outbox.acknowledged
        await self._file.create(data)
        self._exists, self._size, self.upto = True, len(data), upto
        self._base, self._made_room = base, self._outbox.made_room

    async def _shrink(self, full: OutboxFull) -> None:
        """Write the file anew with what still counts, if that is worth it."""
        self._outbox.make_room()
        void = self._outbox.acknowledged - self._base + self._outbox.made_room - self._made_room
        if void < self._void_enough:
            raise full
        before, part = self._size, max(1, int((self.upto - self._base) * WORTH_IT))
        data, upto = await self._anew()
        if upto < self.upto:
            self._void_enough = void + part
            raise full  # what is durable stays so
        await self._create(data, upto)
        bound = min(self._settings.spool_call_bytes, self._settings.spool_bytes)
        gained = before - self._size >= bound * WORTH_IT
        self._void_enough = 1 if gained else part

    async def _anew(self) -> tuple[bytes, int]:
        """Return what a file of all that waits would hold, and up to which number it can."""
        lines = [header_line(self._header), facts_line(self._facts_now())]
        left, upto = self._settings.spool_call_bytes - sum(map(len, lines)), self._acknowledged
        while batch := self._outbox.after(upto):
            for number, record in batch:
                lines.append(record_line(number, record))
                left -= len(lines[-1])
                if left < 0:
                    return b"".join(lines[:-1]), upto
                upto = number
            await checkpoint()
        return b"".join(lines), upto

    async def _delete(self) -> None:
        await self._file.remove()
        self._forget()

    def _forget(self) -> None:
        self._exists, self._size, self._facts = False, 0, Facts()
        self.upto = 0

    async def _let_go(self) -> None:
        try:
            await self._file.let_go()
        except RecallError as error:
            self._tell(error)
        self._spool.wake()

    # --- inside ---------------------------------------------------------------------------------

    def _facts_now(self) -> Facts:
        keeper, (outcome, closed_at) = self._keeper, self._closed
        return Facts(
            run=keeper.run_number,
            epoch=keeper.epoch,
            holding=keeper.state is CallState.HOLDING,
            read_position=keeper.first_read,
            acknowledged=self._outbox.acknowledged,
            lost=tuple(
                LostTenure(number=number, run=tenure.run, epoch=tenure.epoch)
                for number, tenure in self._outbox.lost
            ),
            outcome=outcome,
            closed_at=closed_at,
        )

    @property
    def _acknowledged(self) -> int:
        return self._outbox.acknowledged

    def _tell(self, error: Exception) -> None:
        now = self._spool.clock.monotonic()
        if self._trouble is None and now >= self._told_until:
            self._told_until = now + TOLD_EVERY
            logger.error(
                "records cannot be spooled (%s): they wait in memory alone, the call goes on", error
            )
        self._trouble = str(error)
