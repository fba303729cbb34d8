"""A recorded call, alive again in a store in memory, which an engine can tell from no other."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterable

from ..client import Recall
from ..engine.entries import Entry, LeaseEntry, RecordsEntry, dump_entry
from ..engine.fold import Fold
from ..engine.outputs import encoded, output_cell
from ..engine.partials import write_partials
from ..errors import InvalidInput
from ..models import Partials
from ..settings import Settings
from ..stores.base import Store
from .graveyard import Graveyard
from .moments import Moment, cut_at
from .recorded import Recorded, file_of, read_file, read_store

__all__ = ["Past", "load"]

PATIENT = 20.0
"""How long a reply or a tool may wait for the records in a test: nothing there depends on a fast
machine."""


class Past:
    """A call at the moment at which its worker died. It is handed to what makes the agent."""

    def __init__(self, call_id: str, store: Graveyard, settings: Settings) -> None:
        self.call_id = call_id
        """What the agent is to resume."""
        self._store = store
        self._settings = settings
        self._handles: list[Recall] = []
        self.recall = self.open()
        """Where its records are: in this process alone, and gone with it."""

    def open(self) -> Recall:
        """Return one more handle on the records, to be closed by whoever needs it no more."""
        recall = Recall(
            self._store.shared(),
            settings=self._settings,
            same_call=lambda previous, current: True,  # the room of a test has another sid
        )
        self._handles.append(recall)
        return recall

    def has(self, recall: Recall) -> bool:
        """Whether this handle is one on these records."""
        return any(recall is handle for handle in self._handles)

    async def aclose(self) -> None:
        """Close all handles."""
        for recall in self._handles:
            await recall.aclose()


async def load(
    source: str | os.PathLike[str] | Recall,
    call_id: str | None,
    moment: Moment,
    *,
    silence: float,
    settings: Settings | None,
) -> Past:
    """Load a call as it was at the moment; see `resumed`.

    Raises:
        InvalidInput: There is no such call or moment, or the file is no export.
        StoreError: The store cannot be read.
    """
    if not 0 <= silence < math.inf:
        raise InvalidInput(f"silence is in seconds, from 0 on, not {silence}")
    recorded = cut_at(await _found(source, call_id), moment)
    fold = _folded(recorded.entries)
    if fold.run is None or fold.run.number <= fold.erased_run:
        raise InvalidInput(f"nothing is left of {recorded.named} at that moment: it was erased")
    settings = settings or Settings(seed_wait=PATIENT, action_wait=PATIENT)
    return Past(recorded.call_id, await _revived(recorded, fold, silence), settings)


async def _found(source: str | os.PathLike[str] | Recall, call_id: str | None) -> Recorded:
    if not isinstance(source, Recall) and (path := file_of(source)) is not None:
        recorded = await asyncio.to_thread(read_file, path)
        if call_id not in (None, recorded.call_id):
            raise InvalidInput(f"{path} is the call {recorded.call_id!r}, not {call_id!r}")
        return recorded
    if call_id is None:
        raise InvalidInput("a store has many calls: say which, with call_id=")
    if isinstance(source, Recall):
        return await read_store(source, call_id)
    async with Recall.open(os.fspath(source), spool=False) as recall:
        return await read_store(recall, call_id)


def _folded(entries: Iterable[Entry]) -> Fold:
    fold = Fold(retained_chars=0)
    for entry in entries:
        fold.apply(entry, "")
    return fold


async def _revived(recorded: Recorded, fold: Fold, silence: float) -> Graveyard:
    """Return a store with the call, whose times are moved so that its worker died `silence`
    seconds ago, and whose holder is dead beyond doubt."""
    call_id, store, died_at = recorded.call_id, Graveyard(), time.time() - silence
    shift = died_at - _newest(recorded)
    for position, entry in enumerate(recorded.entries):
        entry = _moved(entry, shift)
        if isinstance(entry, LeaseEntry) and fold.lease and entry.epoch == fold.epoch:
            entry = entry.model_copy(update={"lock": f"killed-{entry.epoch}", "stream": False})
        await store.append(call_id, position, dump_entry(entry))
    for ref, text in recorded.outputs.items():
        anchor, _, counter = ref.partition("/")
        name = output_cell(int(anchor), int(counter))
        await store.put_cell(call_id, name, encoded(text), None)
    if recorded.partials:
        await _put_partials(store, recorded, fold, died_at)
    return store


def _newest(recorded: Recorded) -> float:
    """Return the newest time in the call, by the clocks of those who wrote it."""
    last = recorded.entries[-1]
    records = last.records if isinstance(last, RecordsEntry) else ()
    words = (partial.at for partial in recorded.partials)
    return max([last.at, *(record.at for record in records), *words])


def _moved(entry: Entry, shift: float) -> Entry:
    moved: dict[str, object] = {"at": entry.at + shift}
    if isinstance(entry, RecordsEntry):
        records = entry.records
        moved["records"] = tuple(r.model_copy(update={"at": r.at + shift}) for r in records)
    return entry.model_copy(update=moved)


async def _put_partials(store: Store, recorded: Recorded, fold: Fold, at: float) -> None:
    """Write the words under way as those of the worker that died, `at` its last moment."""
    writer = fold.lease.writer if fold.lease else fold.recent[-1]
    now = {"at": at, "after": fold.last_number(writer)}
    said = Partials(
        writer=writer,
        run=fold.run.number if fold.run else 0,
        partials=tuple(partial.model_copy(update=now) for partial in recorded.partials),
    )
    await write_partials(store, recorded.call_id, fold.writers[writer].anchor, said)
