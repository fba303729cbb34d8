"""One call's chain as this engine knows it: a fold that is kept current, and the next append."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
from pydantic import ValidationError

from ..errors import Conflict, InvalidRecord
from ..models import Briefing, Partial, Value
from ..stores.base import Cell, Store
from .entries import Entry, UnknownEntry, dump_entry, load_entry
from .fold import Fold
from .folded import Folded, entry_id
from .together import both

__all__ = ["SEALED", "SEALED_END", "Chain", "Head", "is_sealed", "readable_entry"]

logger = logging.getLogger("recall_livekit")

PAGE = 256
SEALED = b'{"v":1,"sealed":true}'
SEALED_END = b'{"v":1,"sealed":true,"end":true}'
"""What an erased cell holds, for ever, and what takes the next free name (rule 15)."""


def is_sealed(value: bytes) -> bool:
    """Whether a cell was erased."""
    return value in (SEALED, SEALED_END)


class Head(Value):
    """Where the newest snapshot is: a hint in the cell `head`, checked before it is believed."""

    v: int = 1
    anchor: int
    position: int


class Chain:
    """Reads and appends of one call. `fold` only ever holds what the store acknowledged.

    `writing` is held by whoever appends, so that one create is in flight (rule 2).
    """

    def __init__(
        self, store: Store, call: str, retained_chars: int, *, snapshots: bool = True
    ) -> None:
        """Know nothing yet; the first `refresh` reads."""
        self.store = store
        self.call = call
        self.fold = Fold(retained_chars)
        self.writing = anyio.Lock()
        self.snapshot_position = 0
        self.briefed: tuple[int, tuple[Partial, ...], int, Briefing] | None = None
        self._loaded = not snapshots
        self._news = anyio.Event()

    async def refresh(self) -> Fold:
        """Read on to the end of the chain and return the fold, which later reads change.

        Raises:
            StoreError: The store could not be read.
        """
        if not self._loaded:
            at_end = await self._load_snapshot()
            self._loaded = True
            if at_end:
                return self.fold
        while True:
            start = self.fold.position
            page = await self.store.read(self.call, start, PAGE)
            if self.fold.position == start:
                self._apply(page)
            if len(page) < PAGE:
                return self.fold

    async def wait_news(self) -> None:
        """Return when this engine next sees the chain grow, or is told to look (`ring`)."""
        await self._news.wait()

    def ring(self) -> None:
        """Wake whoever waits for news of this call in this process."""
        self._news.set()
        self._news = anyio.Event()

    async def append(self, entry: Entry) -> None:
        """Append at the fold's position. Call it with `writing` held.

        Raises:
            Conflict: Somebody else was there first; `refresh` and decide again (rule 1).
            StoreError: It failed or its outcome is unknown; `refresh` tells.
        """
        position = self.fold.position
        data = dump_entry(entry)
        await self.store.append(self.call, position, data)
        if self.fold.position == position:
            self.fold.apply(entry, entry_id(data))
            self.ring()

    def _apply(self, page: Sequence[bytes]) -> None:
        for data in page:
            self.fold.apply(readable_entry(data, self.fold.position), entry_id(data))
        if page:
            self.ring()

    async def _load_snapshot(self) -> bool:
        """Begin with the newest snapshot that fits; return whether that read the chain's end."""
        head = _head(await self.store.get_cell(self.call, "head"))
        if head is None or head.position < 1:
            return False
        cell, page = await both(
            self.store.get_cell(self.call, f"snapshot/{head.anchor}/0"),
            self.store.read(self.call, head.position - 1, PAGE),
        )
        folded = _folded(cell)
        if folded is None or folded.position != head.position or self.fold.position:
            return False
        if not page or entry_id(page[0]) != folded.last_id:
            return False
        self.fold = Fold(self.fold.retained_chars, folded)
        self.snapshot_position = folded.position
        self._apply(page[1:])
        return len(page) < PAGE

    async def write_snapshot(self, writer: str) -> None:
        """Write what was acknowledged so far as this writer's snapshot (rules 14 and 16).

        A fold that skipped something newer than this reader writes none.
        """
        known = self.fold.writers.get(writer)
        if known is None or self.fold.with_waiting().unreadable:
            return
        folded = self.fold.value()
        try:
            await self._overwrite(f"snapshot/{known.anchor}/0", folded.model_dump_json().encode())
            head = Head(anchor=known.anchor, position=folded.position)
            await self._overwrite("head", head.model_dump_json().encode())
        except Conflict:
            return  # erased, or a newer holder wrote its own: that one is the better one
        self.snapshot_position = folded.position

    async def _overwrite(self, name: str, value: bytes) -> None:
        cell = await self.store.get_cell(self.call, name)
        if cell and is_sealed(cell.value):
            raise Conflict(f"{name} was erased")
        await self.store.put_cell(self.call, name, value, cell.version if cell else None)


def readable_entry(data: bytes, position: int) -> Entry:
    """Return the entry. What cannot be read is counted: one damaged entry ends no call."""
    try:
        return load_entry(data)
    except InvalidRecord as error:
        logger.error("position %d of a call is unreadable: %s", position, error)
        return UnknownEntry(kind="damaged")


def _head(cell: Cell | None) -> Head | None:
    try:
        return Head.model_validate_json(cell.value) if cell else None
    except ValidationError:
        return None  # a newer version's: the entries tell the same


def _folded(cell: Cell | None) -> Folded | None:
    """Return the snapshot, if it is one that this version can read; else the entries tell it."""
    try:
        folded = Folded.model_validate_json(cell.value) if cell else None
    except ValidationError:
        return None
    return folded if folded and folded.v == 1 else None
