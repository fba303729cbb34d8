"""The rules of the spool, each broken on purpose, as in `mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from recall_livekit.engine import engine as engine_module
from recall_livekit.engine import refusals
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.requests import Ack, Acquire
from recall_livekit.engine.spooled import Placing, placing
from recall_livekit.errors import Fenced, Held, StoreError, UnknownRun
from recall_livekit.outbox import Unit
from recall_livekit.spool.draining import Draining
from recall_livekit.spool.format import Contents

from .disk import Handle
from .mutant import SPOOLING, mutant


@mutant("17", SPOOLING)
def spool_with_new_ids(patch: pytest.MonkeyPatch) -> None:
    """A drainer sends what it finds under a name and numbers of its own."""
    init = Draining.__init__

    def as_another(
        self: Draining, to: Any, clock: Any, how: Any, file: Any, found: Contents
    ) -> None:
        mine = {number: found.records[old] for number, old in enumerate(found.waiting, 1)}
        header = found.header.model_copy(update={"writer": clock.new_id()})
        facts = found.facts.model_copy(update={"acknowledged": 0, "holding": False})
        init(self, to, clock, how, file, replace(found, header=header, facts=facts, records=mine))

    patch.setattr(Draining, "__init__", as_another)


@mutant("17", SPOOLING)
def spool_without_lock(patch: pytest.MonkeyPatch) -> None:
    """A drainer takes a file that a living process has."""
    take = Handle.take

    async def take_all_the_same(self: Handle, read: Callable[[bytes], Any]) -> Any:
        file = self.disk.machine.files.get(self.name)
        if file is not None:
            file.holder = None
        return await take(self, read)

    patch.setattr(Handle, "take", take_all_the_same)


@mutant("7 and 17", replace(SPOOLING, steal=0.3, erase=0.0))
def spool_under_an_epoch_that_its_writer_never_had(patch: pytest.MonkeyPatch) -> None:
    """What a fenced writer spooled goes out as if it had read the newest epoch."""
    send = Draining._send

    async def as_if_it_knew(self: Draining, unit: Unit) -> Ack:
        try:
            return await send(self, unit)
        except Fenced as fenced:
            self._facts = self._facts.model_copy(update={"epoch": fenced.epoch, "holding": False})
            return await send(self, unit)

    patch.setattr(Draining, "_send", as_if_it_knew)


@mutant("17", replace(SPOOLING, erase=0.2, new_room=0.2))
def spool_without_run_after_an_erasure(patch: pytest.MonkeyPatch) -> None:
    """Who never read is believed to have spoken after the erasure."""
    refuse = refusals.refuse_spooled

    def believe(now: Fold, request: Acquire) -> None:
        try:
            refuse(now, request)
        except UnknownRun:
            return

    patch.setattr(engine_module, "refuse_spooled", believe)


@mutant("5 and 17", replace(SPOOLING, erase=0.0, new_room=0.4))
def spool_that_ends_a_newer_run(patch: pytest.MonkeyPatch) -> None:
    """Words of another room open a run, however long ago they were said."""

    def place(now: Fold, **asked: Any) -> Placing:
        try:
            return placing(now, **asked)
        except (Held, UnknownRun):
            return Placing()

    patch.setattr(engine_module, "placing", place)


@mutant("17", SPOOLING)
def spool_deleted_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """A file is done with once everything was sent, whether or not it was answered."""
    stored = Draining._stored

    async def sent(self: Draining, unit: Unit) -> int:
        try:
            return await stored(self, unit)
        except StoreError:
            return unit.last

    patch.setattr(Draining, "_stored", sent)
