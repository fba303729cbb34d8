"""Sending what a spool file holds, as its writer would have sent it (rule 17).

Each record goes out under its own writer and number, so it is there once whoever sends it and
however often. Under the writer's epoch while that is still the writer's, else as late.
"""

from __future__ import annotations

import logging

from ..engine.requests import Ack, Acquire
from ..engine.runs import Origin
from ..errors import Fenced, Gap, OutboxFull, StoreError, UnknownRun
from ..models import Dropped, Record
from ..outbox import Unit, record_size
from ..seams import Clock
from ..settings import Settings
from ..transport import Transport
from .disk import SpoolFile
from .format import Contents, Facts, facts_line, read_record

__all__ = ["Draining"]

logger = logging.getLogger("recall_livekit")

LONG_AGO = 1.0
"""When something was said whose time nobody knows (Unix seconds)."""


class Draining:
    """One file's way into the store; `run` may be cancelled or fail anywhere, and begun anew."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: Settings,
        file: SpoolFile,
        contents: Contents,
    ) -> None:
        """Send nothing yet. `file` is held."""
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._file = file
        self._contents = contents
        self._header = contents.header
        self._facts = contents.facts
        waiting = contents.waiting
        self._first, self._last = (waiting[0], waiting[-1]) if waiting else (1, 0)
        self._placed = False
        """Whether the chain was asked which run it is."""
        self.sent = 0
        """How many records are known to be stored."""
        self.missing = 0
        """How many were damaged on the disk: markers have their places (rule 4)."""

    async def run(self) -> None:
        """Send all of it, and close the call as its writer did; done when it returns.

        Raises:
            Erased: The call was erased: nothing of it may be kept.
            UnknownRun: The run that it belongs to cannot be told (rule 17).
            Held: It opens a run, which must wait until the one that is live is over.
            Gap: The chain lacks records that its writer was told are stored.
            InvalidInput: The store refuses what was accepted once.
            NewerSpool: A record is of a newer version.
            StoreError: It goes on from there the next time.
        """
        following = self._first
        while following <= self._last:
            following = await self._stored(self._unit(following)) + 1
        await self._release()

    # --- units ----------------------------------------------------------------------------------

    def _unit(self, first: int) -> Unit:
        """Return what fits into one entry and belongs to one tenure."""
        ends = [lost.number for lost in self._facts.lost if lost.number >= first]
        records: list[Record] = []
        size = 0
        for number in range(first, min([self._last, *ends]) + 1):
            record = self._record(number)
            size += record_size(record)
            over = len(records) >= self._settings.batch_records or size > self._settings.batch_bytes
            if records and over:
                break
            records.append(record)
        return Unit(first, tuple(records))

    def _record(self, number: int) -> Record:
        data = self._contents.records.get(number)
        if data is not None:
            return read_record(data)
        self.missing += 1
        return Dropped(at=self._said_at(), of="?", reason="damaged on the disk that it waited on")

    def _said_at(self) -> float:
        """When the first of what waits was said: age counts from there (rule 5)."""
        return max(read_record(self._contents.records[self._first]).at, LONG_AGO)

    # --- sending --------------------------------------------------------------------------------

    async def _stored(self, unit: Unit) -> int:
        """Return the number up to which the chain has this writer's records, unit included."""
        while True:
            try:
                ack = await self._send(unit)
            except Gap as gap:
                if gap.expected <= unit.first:
                    raise
                return self._count(unit.first, gap.expected - 1)  # those were stored before
            except Fenced:
                if not self._facts.holding:
                    raise
                self._facts = self._facts.model_copy(update={"holding": False})
            except UnknownRun:
                if self._placed:
                    raise
                unknown = Facts(acknowledged=self._facts.acknowledged)
                self._facts, self._placed = unknown, True
            else:
                return self._count(unit.first, ack.last)

    def _count(self, first: int, last: int) -> int:
        self.sent += min(last, self._last) - first + 1
        return last

    async def _send(self, unit: Unit) -> Ack:
        facts, to = self._facts, self._transport
        call, writer = self._header.call_id, self._header.writer
        for lost in facts.lost:
            if unit.first <= lost.number:
                return await to.append_provisional(
                    call, writer, unit.first, unit.records, lost.run, lost.epoch
                )
        if facts.holding:
            return await to.append(call, writer, unit.first, unit.records, facts.epoch)
        if facts.run == 0:
            facts = await self._place()
        return await to.append_provisional(
            call, writer, unit.first, unit.records, facts.run, facts.epoch
        )

    # --- which run, and how it closed -----------------------------------------------------------

    async def _place(self) -> Facts:
        """Find the run of a writer that knew none, and write it down."""
        header, self._placed = self._header, True
        request = Acquire(
            writer=header.writer,
            attempt=self._clock.new_id(),
            ttl=self._settings.lease_ttl,
            origin=Origin(room_sid=header.room_sid, caller=header.caller),
            read_position=self._facts.read_position,
            said_at=self._said_at(),
        )
        run = await self._transport.open_run(header.call_id, request)
        self._facts = self._facts.model_copy(update={"run": run})
        try:
            await self._file.append(self._contents.size, facts_line(self._facts))
        except (StoreError, OutboxFull) as error:
            logger.debug("a spool's run is not written down, it is found again: %s", error)
        return self._facts

    async def _release(self) -> None:
        """Close the call as its writer wanted to, if it is still its writer's (rule 8)."""
        facts, outcome = self._facts, self._facts.outcome
        if outcome is None or not facts.holding:
            return
        away = self._clock.now() - facts.closed_at
        if outcome == "left" and away > self._settings.rejoin_window:
            outcome = "ended"
        try:
            await self._transport.release(
                self._header.call_id, self._header.writer, facts.epoch, outcome
            )
        except Fenced as fenced:
            logger.debug("a spooled call was not closed: %s", fenced)
