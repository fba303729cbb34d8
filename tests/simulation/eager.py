"""A chain that writes a snapshot of an entry before the store has acknowledged it.

No worker of this version does; a reader must not believe such a snapshot (rule 16).
"""

from __future__ import annotations

from recall_livekit.engine.chain import Chain, Head
from recall_livekit.engine.entries import Entry, RecordsEntry, dump_entry
from recall_livekit.engine.folded import Folded, entry_id
from recall_livekit.errors import Conflict, StoreError

__all__ = ["EagerChain", "ahead", "write_ahead"]


class EagerChain(Chain):
    """Writes what it hopes for."""

    async def append(self, entry: Entry) -> None:
        position = self.fold.position
        if isinstance(entry, RecordsEntry):
            await write_ahead(self, entry.writer, ahead(self, entry))
        if self.fold.position != position:
            raise Conflict("somebody read on meanwhile: decide again")
        await super().append(entry)


def ahead(chain: Chain, entry: Entry) -> Folded:
    """Return the fold as it will be if the entry comes to be."""
    hoped = chain.fold.copy()
    hoped.apply(entry, entry_id(dump_entry(entry)))
    return hoped.value()


async def write_ahead(chain: Chain, writer: str, folded: Folded) -> None:
    """Write a snapshot and the hint to it, if the writer may."""
    if (known := chain.fold.writers.get(writer)) is None:
        return
    head = Head(anchor=known.anchor, position=folded.position)
    try:
        await chain._overwrite(f"snapshot/{known.anchor}/0", folded.model_dump_json().encode())
        await chain._overwrite("head", head.model_dump_json().encode())
    except (Conflict, StoreError):
        return
