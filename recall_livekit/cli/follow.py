"""``show --follow``: what comes into a call's chain, as it comes, until one has seen enough."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import anyio

from ..client import Recall
from ..engine.entries import (
    Entry,
    EraseEntry,
    LeaseEntry,
    RecordsEntry,
    ReleaseEntry,
    RunEntry,
    dump_entry,
)
from ..engine.history import HistoryFold
from ..errors import StoreUnavailable
from .opening import pages, require
from .paper import Paper, note, put
from .telling import ENDS, dim, record_line
from .times import clock

__all__ = ["follow", "follow_json"]

INTERVAL = 0.5
"""Seconds between two looks."""


async def follow(recall: Recall, call: str, fold: HistoryFold, paper: Paper) -> None:
    """Write every entry that comes after the fold. Ends only by an error or an interrupt."""
    paper.line()
    paper.line(dim("  following: Ctrl-C ends it"))
    sys.stdout.flush()
    async for _, entry in _coming(recall, call, fold.position):
        _write(paper, entry, fold)
        fold.note(entry)
        sys.stdout.flush()


async def follow_json(recall: Recall, call: str) -> None:
    """Write every entry from the first on, a line each: ``{"position": 0, "entry": {...}}``."""
    await require(recall, call)
    async for position, entry in _coming(recall, call, 0):
        put(f'{{"position":{position},"entry":{dump_entry(entry).decode()}}}')
        sys.stdout.flush()


async def _coming(recall: Recall, call: str, position: int) -> AsyncIterator[tuple[int, Entry]]:
    """Yield entries from `position` on, for ever. A store that is away is waited for."""
    away = False
    while True:
        try:
            async for start, page in pages(recall, call, position):
                for at, entry in enumerate(page, start):
                    yield at, entry
                position = start + len(page)
            if away:
                note("it answers again")
            away = False
        except StoreUnavailable as error:
            if not away:
                note(f"{error}; trying again")
            away = True
        await anyio.sleep(INTERVAL)


def _write(paper: Paper, entry: Entry, fold: HistoryFold) -> None:
    if isinstance(entry, RecordsEntry):
        standing = fold.standing(entry)
        for record in entry.records:
            record_line(paper, record, standing)
    else:
        paper.line(dim(f"  {clock(entry.at)}  -- {_told(entry)}"))


def _told(entry: Entry) -> str:
    match entry:
        case RunEntry():
            return f"run {entry.run} began" + (
                f" in room {entry.room_sid}" if entry.room_sid else ""
            )
        case LeaseEntry():
            whom = f"{entry.agent_name}, " if entry.agent_name else ""
            return f"epoch {entry.epoch}: {whom}writer {entry.writer} has the call"
        case ReleaseEntry():
            return f"epoch {entry.epoch}: {ENDS[entry.outcome]} (writer {entry.writer})"
        case EraseEntry():
            return "erased: nothing of what was above is recorded any more"
    return f"an entry that this version cannot read ({entry.kind})"
