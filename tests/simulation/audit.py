"""The product's own reading of the data, held against the ledger and against itself."""

from __future__ import annotations

import asyncio
from typing import Any

from recall_livekit.engine.chain import Chain
from recall_livekit.engine.entries import load_entry
from recall_livekit.engine.fold import Fold
from recall_livekit.engine.folded import Folded, entry_id

from .ledger import Fail, Ledger, Said
from .still import Still

__all__ = ["CALL", "Audit"]

CALL = "the call"
_UNKNOWN_FROM_STUBS = {"recent", "lease_position"}
"""What a reader cannot know of an erased entry, and needs for nothing."""


class Audit:
    """Follows the chain with the engine's fold, as a reader that was there all along."""

    def __init__(self, fail: Fail, ledger: Ledger, still: Still, retained_chars: int) -> None:
        self._fail = fail
        self._ledger = ledger
        self._still = still
        self._retained_chars = retained_chars
        self._fold = Fold(retained_chars)
        self._asked: set[asyncio.Task[None]] = set()
        self._whole = retained_chars > 1 << 20

    def entry(self, data: bytes) -> None:
        self._fold.apply(load_entry(data), entry_id(data))

    def compare(self) -> None:
        """Check that the product shows what the ledger says."""
        shown, account = self._fold.with_waiting(), self._ledger.shown()
        ours = [(turn.content, turn.seq, turn.late) for turn in shown.turns]
        theirs = [(said.content, said.seq, said.late) for said in account.said]
        if ours != theirs[len(theirs) - len(ours) :] or (self._whole and len(ours) < len(theirs)):
            self._fail("turns", f"shown {ours[-8:]}, the chain says {theirs[-8:]}")
        if shown.userdata != account.userdata:
            self._fail("state", f"userdata {shown.userdata}, the chain says {account.userdata}")
        goal = shown.working_state.goal if shown.working_state else None
        if goal != account.goal:
            self._fail("state", f"working state {goal}, the chain says {account.goal}")
        self._after_the_old_holder(account.said)

    def _after_the_old_holder(self, said: list[Said]) -> None:
        """Rule 7: provisional turns come after all that was written under the epoch they read."""
        last = {one.lease_epoch: at for at, one in enumerate(said) if one.lease_epoch is not None}
        writers = {one.lease_epoch: one.writer for one in said}
        for at, one in enumerate(said):
            epoch = one.epoch_read
            if epoch in last and last[epoch] > at and writers[epoch] != one.writer:
                self._fail("after", f"{one.content} counts before the end of epoch {epoch}")

    def snapshot(self) -> None:
        """Check that a new reader, who begins with the snapshot, sees what this one does."""
        self._ask(snapshots=True)

    def stubs(self) -> None:
        """Check that a new reader of what an erasure left sees what this one does."""
        self._ask(snapshots=False)

    def _ask(self, *, snapshots: bool) -> None:
        chain = Chain(self._still.copy(), CALL, self._retained_chars, snapshots=snapshots)
        reader = self._compare(chain, self._fold.value(), self._ledger.erases[-1:])
        task = asyncio.ensure_future(reader)
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def answered(self) -> None:
        """Return when all has been compared."""
        while self._asked:
            await asyncio.wait(self._asked)

    async def _compare(self, chain: Chain, mine: Folded, erased: list[int]) -> None:
        started_with = "snapshot" if not chain._loaded else "stubs"
        theirs, ours = _plain((await chain.refresh()).value(), erased), _plain(mine, erased)
        differ = [name for name in ours if ours[name] != theirs[name]]
        if differ:
            what = ", ".join(f"{n}: {str(theirs[n])[:80]} not {str(ours[n])[:80]}" for n in differ)
            self._fail(started_with, what)


def _plain(value: Folded, erased: list[int]) -> dict[str, Any]:
    """Return what two readers must agree on, if the last erasure was at `erased`."""
    fields = dict(value)
    if not erased:
        return fields
    for name in _UNKNOWN_FROM_STUBS:
        fields.pop(name)
    fields["erases"] = value.erases[-1:]
    fields["writers"] = {
        name: one if one.anchor > erased[-1] else (one.last, one.anchor)
        for name, one in value.writers.items()
    }
    return fields
