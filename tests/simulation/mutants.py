"""Rules of the chain, each broken on purpose: patches of the product that the simulation must find.

A patch is as small as the rule that it breaks. The odds bring about what the rule is there for.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import pytest

from recall_livekit.engine import chain as chain_module
from recall_livekit.engine import engine as engine_module
from recall_livekit.engine import erasure, outputs, refusals, runs
from recall_livekit.engine.chain import Chain
from recall_livekit.engine.engine import Engine
from recall_livekit.engine.entries import Entry, LeaseEntry, RecordsEntry, dump_entry, load_entry
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import Folded
from recall_livekit.engine.liveness import Liveness, Witness
from recall_livekit.engine.requests import Ack, Acquire
from recall_livekit.errors import Conflict, Fenced, Gap, RecallError
from recall_livekit.sender import Sender
from recall_livekit.stores.base import Cell, Store
from recall_livekit.stores.objects import ObjectStore

from .eager import ahead, write_ahead
from .mutant import ERASING, LATE_OUTPUTS, RACING, STORMY, mutant
from .outputs import put_blindly

# --- fencing and order --------------------------------------------------------------------------


@mutant("1", replace(STORMY, steal=0.4, erase=0.0))
def fencing_by_position_alone(patch: pytest.MonkeyPatch) -> None:
    """Who meets a conflict tries the next position, and does not look who holds."""

    async def append(self: Engine, call: str, entry: RecordsEntry) -> Ack:
        chain, met = self._chain(call), False
        async with chain.writing:
            while chain.fold.last_number(entry.writer) < entry.last:
                refusal = refusals.refusal(chain.fold, entry)
                if refusal is not None and not (met and isinstance(refusal, Fenced)):
                    raise refusal
                if not await self._try(chain, entry):
                    met = bool(await chain.refresh())
            return Ack(last=entry.last, position=chain.fold.position)

    patch.setattr(Engine, "_append", append)


@mutant("4")
def dedupe_off(patch: pytest.MonkeyPatch) -> None:
    """A known number is written again."""

    async def append(self: Engine, call: str, entry: RecordsEntry) -> Ack:
        chain = self._chain(call)
        async with chain.writing:
            while True:
                now = await chain.refresh()
                refusal = refusals.refusal(now, entry)
                if refusal is not None and not isinstance(refusal, Gap):
                    raise refusal
                if await self._try(chain, entry):
                    return Ack(last=entry.last, position=now.position)

    patch.setattr(Engine, "_append", append)


@mutant("4", replace(STORMY, hasty=0.8))
def gap_accepted(patch: pytest.MonkeyPatch) -> None:
    """A record that comes before the one before it is written."""
    refusal = refusals.refusal

    def none_for_a_gap(now: Fold, entry: RecordsEntry) -> RecallError | None:
        found = refusal(now, entry)
        return None if isinstance(found, Gap) and found.got > found.expected else found

    patch.setattr(engine_module, "refusal", none_for_a_gap)


# --- runs and provisional entries ---------------------------------------------------------------


@mutant("5", replace(RACING, ended=0.5, new_room=0.5))
def run_decided_once(patch: pytest.MonkeyPatch) -> None:
    """Whether it is another call is decided before the first try, and not after a conflict."""

    async def open_run(self: Engine, call: str, request: Acquire) -> int:
        chain, witness = self._chain(call), self._witness(call)
        async with chain.writing:
            now = await chain.refresh()
            liveness = await witness.look(now)
            if runs_on(self, now, request, witness, liveness) and now.run:
                return now.run.number
            while not await self._try(chain, self._run_entry(chain.fold, request)):
                await chain.refresh()
            assert chain.fold.run is not None
            return chain.fold.run.number

    patch.setattr(Engine, "open_run", open_run)


def runs_on(
    engine: Engine, now: Fold, request: Acquire, witness: Witness, liveness: Liveness
) -> bool:
    origin = request.origin.model_copy(update={"at": engine._clock.now()})
    return runs.continues(now, origin, settings=engine.settings, renewed_at=witness.renewed_at)


@mutant("5 and 6", replace(STORMY, new_room=0.5, steal=0.4, erase=0.0))
def late_record_without_run(patch: pytest.MonkeyPatch) -> None:
    """A late record belongs to the run that is current when it comes."""
    count = Fold._count

    def count_in_current(self: Fold, entry: RecordsEntry, run: int, *, late: bool) -> None:
        count(self, entry, self.run.number if self.run else run, late=late)

    patch.setattr(Fold, "_count", count_in_current)


# --- leases -------------------------------------------------------------------------------------


@mutant("8")
def acquire_without_attempt_id(patch: pytest.MonkeyPatch) -> None:
    """Only the try that was answered knows of its lease; one that is repeated takes another."""
    attempt = Engine._try
    answered: set[int] = set()

    async def note(chain: Chain, entry: Entry) -> bool:
        done = await attempt(chain, entry)
        if done and isinstance(entry, LeaseEntry):
            answered.add(entry.epoch)
        return done

    def granted(now: Fold, request: Acquire) -> LeaseEntry | None:
        mine = now.lease and now.lease.writer == request.writer and now.epoch in answered
        answered.discard(now.epoch)
        return now.lease if mine else None

    patch.setattr(Engine, "_try", staticmethod(note))
    patch.setattr(Engine, "_granted", staticmethod(granted))


@mutant("9", RACING)
def evidence_looked_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whether the holder lives is looked at before the first try, and not after a conflict."""
    acquire, look = Engine.acquire, Witness.look
    seen: dict[int, Liveness] = {}
    asking: list[int] = []

    async def once(self: Witness, now: Fold) -> Liveness:
        if id(self) not in asking:
            return await look(self, now)
        if id(self) not in seen:
            seen[id(self)] = await look(self, now)
        return seen[id(self)]

    async def ask(self: Engine, call: str, request: Acquire) -> Any:
        witness = id(self._witness(call))
        asking.append(witness)
        try:
            return await acquire(self, call, request)
        finally:
            asking.remove(witness)
            seen.pop(witness, None)

    patch.setattr(Witness, "look", once)
    patch.setattr(Engine, "acquire", ask)


@mutant("9, of who breaks a lease", replace(STORMY, breaks=0.8))
def steal_ignoring_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Who breaks the lease of a holder that it found frozen breaks whoever has the call by then."""
    patch.setattr(engine_module, "refuse_other_epoch", lambda now, epoch: None)


# --- erasure ------------------------------------------------------------------------------------


@mutant("12", replace(ERASING, old_room=0.5))
def erased_sid_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nobody knows in which rooms an erased call was."""
    patch.setattr(refusals, "sid_hash", lambda sid: "nobody's")


@mutant("13", replace(ERASING, erase_fuse=0.9, longest_fuse=20))
def sweep_by_prefix(patch: pytest.MonkeyPatch) -> None:
    """Whoever finishes an erasure stubs all that the call has by then."""
    stub_below = erasure._stub_below

    async def stub_all(store: Store, call: str, position: int) -> set[int]:
        anchors = await stub_below(store, call, position)
        page = await store.read(call, position + 1, 256)
        stubs = [dump_entry(erasure._stub(load_entry(data))) for data in page]
        await store.replace(call, position + 1, stubs)
        return anchors

    patch.setattr(erasure, "_stub_below", stub_all)


@mutant("14", replace(ERASING, kind="bucket"))
def cells_without_compare(patch: pytest.MonkeyPatch) -> None:
    """A cell is overwritten whatever version it has."""
    put = ObjectStore.put_cell

    async def put_cell(
        self: ObjectStore, call: str, name: str, value: bytes, version: str | None
    ) -> str:
        while True:
            cell = await self.get_cell(call, name)
            try:
                return await put(self, call, name, value, cell.version if cell else None)
            except Conflict:
                continue

    patch.setattr(ObjectStore, "put_cell", put_cell)


@mutant("14 and 15", replace(ERASING, outputs=0.8))
def outputs_without_counter(patch: pytest.MonkeyPatch) -> None:
    """An output is named by what nobody can list."""

    def by_content(anchor: int, counter: int) -> str:
        return f"output/{anchor}/{zlib.crc32(b'%d' % counter)}"

    patch.setattr(outputs, "output_cell", by_content)


@mutant("15", LATE_OUTPUTS)
def outputs_beyond_a_seal(patch: pytest.MonkeyPatch) -> None:
    """Who finds a name sealed takes the next one."""
    patch.setattr(outputs, "is_sealed", lambda value: False)
    patch.setattr(Engine, "put_output", put_blindly)


@mutant("14", replace(STORMY, outputs=0.8))
def outputs_named_before_they_are_there(patch: pytest.MonkeyPatch) -> None:
    """A ref is recorded while the text is still on its way."""

    async def never_sent(
        store: Store, call: str, anchor: int, counter: int, data: bytes
    ) -> int | None:
        return counter

    patch.setattr(engine_module, "write_output", never_sent)


# --- snapshots ----------------------------------------------------------------------------------


@mutant("16")
def snapshot_of_unacknowledged_entries(patch: pytest.MonkeyPatch) -> None:
    """A snapshot counts an entry that was sent, beside the last one that came to be."""
    append = Chain.append

    async def snapshot_first(self: Chain, entry: Entry) -> None:
        sent = {"position": self.fold.position, "last_id": self.fold.last_id}
        if isinstance(entry, RecordsEntry):
            await write_ahead(self, entry.writer, ahead(self, entry).model_copy(update=sent))
        if self.fold.position != sent["position"]:
            raise Conflict("somebody read on meanwhile: decide again")
        await append(self, entry)

    patch.setattr(Chain, "append", snapshot_first)


@mutant("16", replace(STORMY, evict=0.1))
def snapshot_without_numbers(patch: pytest.MonkeyPatch) -> None:
    """A snapshot forgets how far each writer had come."""
    folded = chain_module._folded

    def without(cell: Cell | None) -> Folded | None:
        found = folded(cell)
        if found is None:
            return None
        writers = {name: one.model_copy(update={"last": 0}) for name, one in found.writers.items()}
        return found.model_copy(update={"writers": writers})

    patch.setattr(chain_module, "_folded", without)


@mutant("16", replace(STORMY, eager=0.5))
def snapshot_without_the_check(patch: pytest.MonkeyPatch) -> None:
    """A reader believes a snapshot whose last entry the chain does not have."""

    async def load(self: Chain) -> bool:
        head = chain_module._head(await self.store.get_cell(self.call, "head"))
        if head is None:
            return False
        cell = await self.store.get_cell(self.call, f"snapshot/{head.anchor}/0")
        folded = chain_module._folded(cell)
        if folded is not None and not self.fold.position:
            self.fold = Fold(self.fold.retained_chars, folded)
            self.snapshot_position = folded.position
        return False

    patch.setattr(Chain, "_load_snapshot", load)


# --- tools --------------------------------------------------------------------------------------


@mutant("18")
def begun_without_the_lease(patch: pytest.MonkeyPatch) -> None:
    """Whatever was acknowledged while the lease is held counts as begun under it."""

    def accepted_under(self: Sender) -> int:
        return self._keeper.epoch

    patch.setattr(Sender, "_accepted_under", accepted_under)
