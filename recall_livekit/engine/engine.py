"""The engine: what can be asked of a call, and the rules by which it is answered.

Several engines in several processes work on one store; they know nothing of each other. Each
answer is decided on a fold of exactly the entries below the position that it is written to.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio

from ..call_ids import is_reserved, standby_call_id
from ..errors import Conflict, Erased, InvalidRecord, StoreError, StoreUnavailable
from ..models import Outcome, Partial, Partials, Record, Renewal
from .chain import Chain
from .entries import Entry, EraseEntry, LeaseEntry, RecordsEntry, ReleaseEntry, RunEntry
from .erasure import finish_erasure, is_finished
from .fold import Fold
from .liveness import Liveness, Witness, renewal_cell
from .onlooker import Onlooker
from .outputs import encoded, write_output
from .partials import read_partials, write_partials
from .refusals import (
    fenced,
    refusal,
    refuse_erased,
    refuse_held,
    refuse_other_epoch,
    refuse_spooled,
)
from .requests import Ack, Acquire, Grant
from .silence import signs_of_life
from .spooled import newest_run, placing
from .streams import close_stream, open_stream, reopen_stream

__all__ = ["Engine"]

logger = logging.getLogger("recall_livekit")

MOVING = "other writers were faster at every try"
TRIES = 64
"""How often one request meets a conflict before it is answered as unavailable."""


class Engine(Onlooker):
    """All the rules over one store. Safe to share between the calls of a process."""

    # --- leases -------------------------------------------------------------------------------

    async def acquire(self, call: str, request: Acquire) -> Grant:
        """Take the lease, opening a new run first if this is another call.

        Raises:
            Held: A live holder has it and `steal` was not asked for, or not of its epoch.
            Erased: The room, or what this writer has read, was erased.
            Fenced: The attempt was granted and lost again since, or nobody has what it steals.
            StoreError.
        """
        chain, witness = self._chain(call), self._witness(call)
        async with chain.writing:
            resumed, taken_from, signs = True, None, (0.0, 0.0)
            for _ in range(TRIES):
                fold, liveness = await self._looked(chain, witness)
                granted = self._granted(fold, request)
                if granted is not None:
                    await self._tell_taken(taken_from)
                    return await self._grant(chain, granted, resumed, signs, request.tokens)
                goes_on = self._admitted(fold, request, witness, liveness)
                resumed = resumed and goes_on
                taken_from = fold.lease.lock if fold.lease else None
                signs = signs_of_life(fold, witness.renewed_at) if resumed else (0.0, 0.0)
                await self._try(chain, self._next_entry(fold, request, goes_on))
            raise StoreUnavailable(MOVING)

    async def renew(self, call: str, writer: str, epoch: int) -> None:
        """Show that the holder lives.

        Raises:
            Fenced: The epoch is not this writer's any more.
            StoreError.
        """
        fold = await self._chain(call).refresh()
        if not fold.holds(writer, epoch):
            raise fenced(fold)
        name = renewal_cell(epoch)
        cell = await self.store.get_cell(call, name)
        value = Renewal(at=self._clock.now()).model_dump_json().encode()
        try:
            await self.store.put_cell(call, name, value, cell.version if cell else None)
        except Conflict:
            return  # this writer's own renewal whose answer was lost: it counts as well
        if fold.lease and fold.lease.stream:
            await reopen_stream(self.store, call, epoch)

    async def release(self, call: str, writer: str, epoch: int, outcome: Outcome) -> None:
        """Give the lease back, so that the next holder need not wait. Repeating it is harmless.

        Raises:
            Fenced: Another lease is in force: this release touches nothing of it.
            StoreError.
        """
        chain = self._chain(call)
        async with chain.writing:
            for _ in range(TRIES):
                fold = await chain.refresh()
                if fold.epoch == epoch and fold.lease is None:
                    return
                if not fold.holds(writer, epoch):
                    raise fenced(fold)
                await self._try(
                    chain,
                    ReleaseEntry(epoch=epoch, at=self._clock.now(), writer=writer, outcome=outcome),
                )
            raise StoreUnavailable(MOVING)

    async def hold_lock(self, name: str) -> str | None:
        """Take a lock that shows that this process lives; None if the store knows no locks."""
        if self._locks is None:
            return None
        await self._locks.hold(name)
        return name

    async def let_go_lock(self, name: str | None) -> None:
        """Give it back: waiters are woken at once."""
        if self._locks is not None and name is not None:
            await self._locks.let_go(name)

    async def stay(self, call: str, writer: str, epoch: int, lock: str | None) -> None:
        """Return when somebody took the call whose lease names this lock. May never return."""
        if self._locks is None or lock is None:
            await anyio.sleep_forever()
        else:
            await self._locks.wait_removed(lock)

    async def open_stream(self, call: str, writer: str, epoch: int) -> int:
        """Say that the holder's stream is open; return its generation, for `close_stream`.

        Raises:
            Fenced: The epoch is not this writer's any more.
            StoreError.
        """
        fold = await self._chain(call).refresh()
        if not fold.holds(writer, epoch):
            raise fenced(fold)
        return await open_stream(self.store, call, epoch)

    async def close_stream(self, call: str, epoch: int, generation: int) -> None:
        """Say that this stream broke, and, if the holder does not come back within
        `disconnect_grace`, that it is gone.

        Raises:
            StoreError.
        """
        chain = self._chain(call)
        for state in ("broken", "gone"):
            if not await close_stream(self.store, call, epoch, generation, state):
                return
            chain.ring()
            if state == "broken":
                await self._clock.sleep(self.settings.disconnect_grace)

    # --- writing ------------------------------------------------------------------------------

    async def append(
        self, call: str, writer: str, first: int, records: Sequence[Record], epoch: int
    ) -> Ack:
        """Append records under the lease; when it returns they are durable, once (rule 4).

        Raises:
            Fenced, Gap, InvalidRecord, StoreError.
        """
        entry = RecordsEntry(
            epoch=epoch, at=self._clock.now(), writer=writer, first=first, records=tuple(records)
        )
        return await self._append(call, entry)

    async def append_provisional(
        self,
        call: str,
        writer: str,
        first: int,
        records: Sequence[Record],
        run: int,
        epoch_read: int,
    ) -> Ack:
        """Append records of a writer that does not hold the lease, not yet or no more (rule 6).

        Raises:
            Erased, UnknownRun, Gap, InvalidRecord, StoreError.
        """
        entry = RecordsEntry(
            epoch=epoch_read,
            at=self._clock.now(),
            writer=writer,
            first=first,
            records=tuple(records),
            provisional_run=run,
        )
        return await self._append(call, entry)

    async def open_run(self, call: str, request: Acquire) -> int:
        """Return the run that this origin's provisional records belong to, opening it if needed.

        With `said_at` they are a spool's, which are decided at that time (see `spooled`).

        Raises:
            Erased, StoreError.
            Held, UnknownRun: Of a spool's alone: try later; it can never be told.
        """
        chain, witness = self._chain(call), self._witness(call)
        async with chain.writing:
            for _ in range(TRIES):
                fold, liveness = await self._looked(chain, witness)
                if (run := await self._known_run(chain, request, witness, liveness)) is not None:
                    return run
                await self._try(chain, self._run_entry(fold, request))
            raise StoreUnavailable(MOVING)

    async def put_partials(
        self, call: str, writer: str, run: int, partials: Sequence[Partial]
    ) -> bool:
        """Overwrite the writer's partials; False if it has no entry yet, or was erased.

        Raises:
            StoreError.
        """
        known = self._chain(call).fold.writers.get(writer)
        value = Partials(writer=writer, run=run, partials=tuple(partials))
        return known is not None and await write_partials(self.store, call, known.anchor, value)

    async def put_output(self, call: str, writer: str, counter: int, text: str) -> str | None:
        """Keep a text beside the chain and return the ref that fetches it; None while the writer
        has no entry in the chain, which its outputs are named by (rule 14).

        `counter` is how many of the writer's outputs are known to be there. When this returns the
        text is durable, once, however often it is repeated with the same counter.

        Raises:
            Erased: What this writer wrote was erased.
            InvalidRecord: It is over `OUTPUT_BYTES`.
            StoreError: Its outcome is unknown; repeat it.
        """
        data, chain = encoded(text), self._chain(call)
        known = chain.fold.writers.get(writer) or (await chain.refresh()).writers.get(writer)
        if known is None:
            return None
        gone = any(known.anchor < position for position in chain.fold.erases)
        kept = None
        if not gone:
            kept = await write_output(self.store, call, known.anchor, counter, data)
        if kept is None:
            raise Erased("what this writer wrote was erased: its outputs are kept no more")
        return f"{known.anchor}/{kept}"

    # --- erasure ------------------------------------------------------------------------------

    async def erase(self, call: str) -> None:
        """Erase the call's content, and what there is of its standby; when it returns, no byte of
        it is in the store (rule 12).

        Raises:
            StoreError: It is not done; another `erase` goes on.
        """
        await self._erase(call)
        if not is_reserved(call):
            standby = standby_call_id(call)
            if await self.store.read(standby, 0, 1):
                await self._erase(standby)

    async def _erase(self, call: str) -> None:
        chain = self._chain(call)
        async with chain.writing:
            for _ in range(TRIES):
                fold = await chain.refresh()
                if fold.erases and fold.erases[-1] == fold.position - 1:
                    break
                await self._try(chain, EraseEntry(epoch=fold.epoch + 1, at=self._clock.now()))
            else:
                raise StoreUnavailable(MOVING)
        await self.finish_erasure(call)
        self._chains.pop(call, None)
        self._witnesses.pop(call, None)

    async def finish_erasure(self, call: str) -> None:
        """Carry an erasure that was begun to its end, if there is one (rule 13)."""
        fold = self._chain(call).fold
        if fold.erases and not await is_finished(self.store, call, fold.erases[-1]):
            await finish_erasure(self.store, call, fold.erases[-1])

    async def aclose(self) -> None:
        """Close the store."""
        await self.store.aclose()

    # --- inside -------------------------------------------------------------------------------

    def _admitted(self, fold: Fold, request: Acquire, witness: Witness, liveness: Liveness) -> bool:
        """Return whether the taker goes on with the current run; raise if it may not take it."""
        refuse_erased(fold, request)
        if request.steal_epoch is not None:
            refuse_other_epoch(fold, request.steal_epoch)
            return True
        goes_on = self._continues(fold, request.origin, witness, liveness)
        if goes_on and not request.steal:
            refuse_held(fold, request.writer, liveness)
        return goes_on

    async def _known_run(
        self, chain: Chain, request: Acquire, witness: Witness, liveness: Liveness
    ) -> int | None:
        """Return the run that is there for these records; None if they open one."""
        fold, said_at = chain.fold, request.said_at
        if said_at is None:
            refuse_erased(fold, request)
            goes_on = self._continues(fold, request.origin, witness, liveness)
            return fold.run.number if goes_on and fold.run else None
        refuse_spooled(fold, request)
        place = placing(
            fold,
            writer=request.writer,
            room_sid=request.origin.room_sid,
            said_at=said_at,
            goes_on=self._continues(fold, request.origin, witness, liveness, at=said_at),
            renewed_at=witness.renewed_at,
            liveness=liveness,
        )
        if place.of_writer:
            return await newest_run(self.store, chain.call, writer=request.writer)
        if place.of_room:
            sid = request.origin.room_sid
            return await newest_run(self.store, chain.call, room_sid=sid)
        return place.run

    @staticmethod
    async def _looked(chain: Chain, witness: Witness) -> tuple[Fold, Liveness]:
        """Return the fold and what was seen of its holder: of this very fold, which other
        readers of the chain may have carried on meanwhile (rules 1 and 9)."""
        for _ in range(TRIES):
            fold = await chain.refresh()
            position = fold.position
            liveness = await witness.look(fold)
            if chain.fold is fold and fold.position == position:
                return fold, liveness
        raise StoreUnavailable(MOVING)

    @staticmethod
    async def _try(chain: Chain, entry: Entry) -> bool:
        try:
            await chain.append(entry)
        except Conflict:
            return False
        return True

    @staticmethod
    def _granted(fold: Fold, request: Acquire) -> LeaseEntry | None:
        """Return the grant of this very attempt, if it was made (rule 8).

        One that was granted and lost since gets no second lease, however late it comes.
        """
        known = fold.writers.get(request.writer)
        if known is None or request.attempt not in known.attempts:
            return None
        if fold.lease is None or fold.lease.attempt != request.attempt:
            raise fenced(fold)
        return fold.lease

    async def _tell_taken(self, lock: str | None) -> None:
        if self._locks is not None and lock is not None:
            await self._locks.remove(lock)

    async def _grant(
        self,
        chain: Chain,
        lease: LeaseEntry,
        resumed: bool,
        signs: tuple[float, float],
        tokens: int | None,
    ) -> Grant:
        partials = await read_partials(self.store, chain.call, chain.fold)
        return Grant(
            epoch=lease.epoch,
            run=lease.run,
            position=chain.fold.position,
            resumed=resumed,
            briefing=self._brief(chain, partials, tokens),
            silence=self._silence(signs, partials),
        )

    def _next_entry(self, fold: Fold, request: Acquire, goes_on: bool) -> RunEntry | LeaseEntry:
        if not goes_on or fold.run is None:
            return self._run_entry(fold, request)
        return LeaseEntry(
            epoch=fold.epoch + 1,
            at=self._clock.now(),
            writer=request.writer,
            attempt=request.attempt,
            run=fold.run.number,
            ttl=request.ttl,
            lock=request.lock,
            stream=request.stream,
            agent_name=request.agent_name,
        )

    def _run_entry(self, fold: Fold, request: Acquire) -> RunEntry:
        return RunEntry(
            epoch=fold.epoch,
            at=self._clock.now() if request.said_at is None else request.said_at,
            writer=request.writer,
            run=(fold.run.number if fold.run else 0) + 1,
            room_sid=request.origin.room_sid,
            caller=request.origin.caller,
        )

    async def _append(self, call: str, entry: RecordsEntry) -> Ack:
        if not entry.records or entry.first < 1:
            raise InvalidRecord("an entry has at least one record, numbered from 1")
        chain = self._chain(call)
        async with chain.writing:
            fold, current = chain.fold, False
            for _ in range(TRIES):
                if fold.last_number(entry.writer) >= entry.last:
                    return Ack(last=fold.last_number(entry.writer), position=fold.position)
                refused = refusal(fold, entry)
                if refused is not None and not current:
                    fold, current = await chain.refresh(), True
                    continue
                if refused is not None:
                    raise refused
                if not await self._try(chain, entry):
                    fold, current = await chain.refresh(), True
                elif entry.provisional_run is None:
                    await self._snapshot_if_due(chain, entry.writer)
            raise StoreUnavailable(MOVING)

    async def _snapshot_if_due(self, chain: Chain, writer: str) -> None:
        """Keep the tail that a resume reads short. It may fail: the entries tell the same."""
        if chain.fold.position - chain.snapshot_position < self.settings.snapshot_entries:
            return
        try:
            await chain.write_snapshot(writer)
        except StoreError as error:
            logger.debug("snapshot not written: %s", error)
