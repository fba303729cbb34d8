"""Erasing a call without transactions: stub what lies below, seal the names beside (13 to 15)."""

from __future__ import annotations

from ..errors import Conflict, InvalidRecord
from ..stores.base import Store
from .chain import PAGE, SEALED, SEALED_END, is_sealed
from .entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    StubEntry,
    UnknownEntry,
    dump_entry,
    load_entry,
)
from .folded import sid_hash
from .together import together

__all__ = ["finish_erasure", "is_finished"]

_NAMED = ("partial", "snapshot", "output")


def _done_cell(position: int) -> str:
    return f"erased/{position}"


async def is_finished(store: Store, call: str, position: int) -> bool:
    """Whether the erase entry at `position` was carried out to its end."""
    return await store.get_cell(call, _done_cell(position)) is not None


async def finish_erasure(store: Store, call: str, position: int) -> None:
    """Carry out the erase entry at `position`; anybody may, again and again.

    When it returns, no byte of the content below is in the store, and no late writer can bring
    one back: its positions and its names are taken.
    """
    anchors = await _stub_below(store, call, position)
    for anchor in sorted(anchors):
        await together([_seal(store, call, f"{kind}/{anchor}") for kind in _NAMED])
    await store.scrub(call)
    try:
        await store.put_cell(call, _done_cell(position), b"{}", None)
    except Conflict:
        return  # somebody else finished it too


async def _stub_below(store: Store, call: str, position: int) -> set[int]:
    """Replace every entry below `position`; return the first entry of each writer."""
    anchors: dict[str, int] = {}
    at = 0
    while at < position:
        page = (await store.read(call, at, PAGE))[: position - at]
        stubs = [_stub(_load(data)) for data in page]
        for offset, stub in enumerate(stubs):
            if isinstance(stub, StubEntry) and stub.writer:
                anchors.setdefault(stub.writer, at + offset)
        await store.replace(call, at, [dump_entry(stub) for stub in stubs])
        at += len(page)
    return set(anchors.values())


def _load(data: bytes) -> Entry:
    try:
        return load_entry(data)
    except InvalidRecord:
        return UnknownEntry()  # whatever it was, it goes


def _stub(entry: Entry) -> Entry:
    """Return what stays: position, epoch, numbers, and a hash of the sid (rule 13)."""
    match entry:
        case RecordsEntry():
            return StubEntry(
                epoch=entry.epoch,
                at=entry.at,
                was="records",
                writer=entry.writer,
                first=entry.first,
                count=len(entry.records),
            )
        case RunEntry():
            sid = sid_hash(entry.room_sid) if entry.room_sid else None
            return StubEntry(
                epoch=entry.epoch,
                at=entry.at,
                was="run",
                writer=entry.writer,
                run=entry.run,
                sid_hash=sid,
            )
        case LeaseEntry() | ReleaseEntry():
            return StubEntry(epoch=entry.epoch, at=entry.at, was=entry.kind, writer=entry.writer)
        case EraseEntry():
            return StubEntry(epoch=entry.epoch, at=entry.at, was="erase")
        case StubEntry():
            return entry
        case _:
            return StubEntry(epoch=entry.epoch, at=entry.at, was="unknown")


async def _seal(store: Store, call: str, prefix: str) -> None:
    """Overwrite the names `prefix`/0, /1 ... and take the next one (rule 15)."""
    counter = 0
    while not await _seal_one(store, call, f"{prefix}/{counter}"):
        counter += 1


async def _seal_one(store: Store, call: str, name: str) -> bool:
    """Seal one name; return whether it is the free one at the end."""
    while True:
        cell = await store.get_cell(call, name)
        if cell is not None and is_sealed(cell.value):
            return cell.value == SEALED_END
        seal = SEALED_END if cell is None else SEALED
        try:
            await store.put_cell(call, name, seal, cell.version if cell else None)
        except Conflict:
            continue  # a late writer was faster: what it wrote is sealed in the next round
        return cell is None
