"""Streams a call's outbox to the store: one unit in flight, the same until it is acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import anyio

from .engine.requests import Ack
from .engine.together import first_of
from .errors import Erased, Fenced, InvalidInput, RecallError, StoreError, UnknownRun
from .keeper import LeaseKeeper
from .models import Dropped, Partial, Record
from .outbox import Outbox, Unit
from .redaction import Redactor
from .seams import Clock
from .settings import Settings
from .standing import CallState
from .transport import Transport

__all__ = ["Sender"]

logger = logging.getLogger("recall_livekit")


class Sender:
    """Sends records under the lease while this worker holds it, else as provisional (rule 6)."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: Settings,
        call_id: str,
        keeper: LeaseKeeper,
        outbox: Outbox,
        redactor: Redactor,
    ) -> None:
        """Send nothing yet."""
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._call_id = call_id
        self._keeper = keeper
        self._outbox = outbox
        self._redactor = redactor
        self._redacting = anyio.Lock()
        self._tried_under: set[int] = set()
        """The epochs under which the unit in flight was sent; 0 for once without the lease."""
        self._partials: dict[str, Partial] = {}
        self._partials_changed = anyio.Event()

    async def run(self) -> None:
        """Send whatever is queued, for as long as the call lives."""
        while True:
            await self.drain()
            await self._outbox.wait_change()

    async def drain(self) -> None:
        """Return once the outbox is empty; tries for as long as it takes."""
        pause = self._settings.retry_first
        while self._outbox.lag:
            if (unit := self._outbox.unit()) is None:
                await self.redact()
                continue
            await self._wait_known()
            try:
                ack = await self._send(unit)
            except Exception as error:
                await self._failed(error, unit, pause)
                pause = min(2 * pause, self._settings.retry_last)
            else:
                self._outbox.acknowledge(ack.last, self._accepted_under())
                pause = self._settings.retry_first

    def _accepted_under(self) -> int:
        """Return the epoch of the lease that the unit was surely written under, else 0: a number
        that is known already is answered before any epoch is looked at (rule 4)."""
        tried, self._tried_under = self._tried_under, set()
        return tried.pop() if len(tried) == 1 else 0

    async def _wait_known(self) -> None:
        """A writer that has not read the chain knows no run to write to."""
        while self._keeper.reading is None:
            await self._keeper.wait_change()

    async def _send(self, unit: Unit) -> Ack:
        records, keeper = unit.records, self._keeper
        async with keeper.creating:
            lost = self._outbox.lost_with(unit)
            held = lost is None and keeper.state is CallState.HOLDING
            self._tried_under.add(keeper.epoch if held else 0)
            if lost is not None:
                return await self._transport.append_provisional(
                    self._call_id, keeper.writer, unit.first, records, lost.run, lost.epoch
                )
            if held:
                return await self._transport.append(
                    self._call_id, keeper.writer, unit.first, records, keeper.epoch
                )
            if keeper.run_number == 0:
                if keeper.lost is not None:
                    raise Erased("the run that this was said in was never opened, and is over")
                request = keeper.request()
                keeper.run_number = await self._transport.open_run(self._call_id, request)
                self._outbox.tell()
            return await self._transport.append_provisional(
                self._call_id, keeper.writer, unit.first, records, keeper.run_number, keeper.epoch
            )

    async def _failed(self, error: Exception, unit: Unit, pause: float) -> None:
        if isinstance(error, Erased):
            dropped = self._outbox.clear()
            logger.warning("%d records are not written: %s", dropped, error)
            self._keeper.check_now()
        elif isinstance(error, InvalidInput) or not isinstance(error, RecallError):
            logger.error("records %d-%d cannot be stored: %s", unit.first, unit.last, error)
            self._outbox.give_up(unit, str(error))
            await self._clock.sleep(pause)  # the marker may be refused as well
        elif isinstance(error, UnknownRun):
            self._keeper.run_number = 0
        elif isinstance(error, Fenced):
            await self._wait_fenced()
        else:
            self._outbox.failed()
            if not isinstance(error, StoreError):
                logger.error("records %d-%d were refused: %s", unit.first, unit.last, error)
            sleep = partial(self._clock.sleep, self._clock.jitter(pause))
            await first_of(sleep, self._keeper.wait_reached)

    async def _wait_fenced(self) -> None:
        """Let the keeper find out too; what was refused goes out as late records then."""
        self._keeper.check_now()
        with anyio.move_on_after(self._settings.retry_last):
            while self._keeper.state is CallState.HOLDING:
                await self._keeper.wait_change()

    # --- redaction ----------------------------------------------------------------------------

    async def run_redact(self) -> None:
        """Redact whatever is queued at once, whether or not anything can be sent."""
        while True:
            await self.redact()
            await self._outbox.wait_change()

    async def redact(self, seconds: float | None = None) -> None:
        """Return once nothing queued is raw: each record is redacted once, in its order.

        What takes longer than the redactor's bound, or than `seconds` a batch, is withheld.
        """
        async with self._redacting:
            while (raw := self._outbox.raw()) is not None:
                self._outbox.redacted(raw, await self._redacted(raw.records, seconds))

    async def _redacted(self, raw: Sequence[Record], seconds: float | None) -> Sequence[Record]:
        try:
            return await self._redactor.records(raw, seconds)
        except Exception as error:  # what came out is no record any more
            logger.error("%d records cannot be redacted: %s", len(raw), type(error).__name__)
            reason = "it could not be redacted"
            return [Dropped(at=r.at, of=getattr(r, "kind", "?"), reason=reason) for r in raw]

    # --- partials -----------------------------------------------------------------------------

    def partial(self, partial: Partial) -> None:
        """Note speech under way; only the newest of each role is kept."""
        self._partials[partial.role] = partial
        self._partials_changed.set()

    def spoken(self, role: str) -> None:
        """The turn of this role was recorded: its partial is over."""
        self._partials.pop(role, None)

    async def run_partials(self) -> None:
        """Write the newest partials, at most every `partial_interval`."""
        while True:
            await self._partials_changed.wait()
            self._partials_changed = anyio.Event()
            await self._wait_known()
            await self.write_partials()
            await self._clock.sleep(self._settings.partial_interval)

    async def write_partials(self) -> None:
        """Write the newest partials now. One that cannot be written is followed by the next."""
        try:
            partials = await self._redactor.partials(list(self._partials.values()))
            keeper = self._keeper
            if keeper.run_number:
                await self._transport.put_partials(
                    self._call_id, keeper.writer, keeper.run_number, partials
                )
        except StoreError as error:
            logger.debug("partials not written: %s", error)
