"""Opening what is recorded, to look at it: it makes nothing where there is nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ..client import DEFAULT_URL, Recall
from ..engine.entries import Entry
from ..engine.history import HistoryFold
from ..engine.requests import Reading
from ..remote.address import is_remote
from ..stores import opening as stores
from .codes import Failed
from .texts import public_url, shown_id

__all__ = [
    "address",
    "described",
    "directory_of",
    "existing",
    "folded",
    "nothing_of",
    "opened",
    "pages",
    "reading",
    "require",
]

PAGE = 256
"""Entries in one request."""


def address(url: str | None) -> str:
    """Return where the records are: what was given, else `RECALL_URL`, else the default."""
    return url or os.environ.get("RECALL_URL") or DEFAULT_URL


def directory_of(url: str) -> Path | None:
    """Return the directory of an embedded address; None for a server's.

    Raises:
        InvalidSettings: It names no directory.
    """
    return stores.directory_of(url) if url.startswith("sqlite:") else None


def existing(url: str) -> str:
    """Return the address if something may be there.

    Raises:
        Failed: There is no such directory, or it was never used.
    """
    directory = directory_of(url)
    if directory is not None and not (directory / "calls").is_dir():
        where = "no such directory" if not directory.exists() else "no calls in it"
        raise Failed(
            f"nothing is recorded in {directory}: {where}. "
            "Give --url, or set RECALL_URL, to where the workers record"
        )
    return url


@asynccontextmanager
async def opened(url: str | None) -> AsyncIterator[Recall]:
    """Open what is recorded there, to look at it.

    Raises:
        Failed: Nothing is there.
        InvalidSettings: It is no address.
    """
    recall = Recall.open(existing(address(url)))
    try:
        yield recall
    finally:
        await recall.aclose()


async def pages(
    recall: Recall, call: str, start: int = 0
) -> AsyncIterator[tuple[int, Sequence[Entry]]]:
    """Yield the chain from `start` on in pages, each with the position of its first entry."""
    while page := await recall.entries(call, start, PAGE):
        yield start, page
        start += len(page)


async def folded(recall: Recall, call: str, until: int | None = None) -> HistoryFold:
    """Return the fold of the call's whole history, or of what it was at position `until`.

    Raises:
        Failed: There is no such call.
        InvalidCallId, StoreError.
    """
    fold = HistoryFold(until)
    async for _, page in pages(recall, call):
        for entry in page:
            fold.note(entry)
    if not fold.position:
        raise nothing_of(call)
    return fold


async def require(recall: Recall, call: str) -> None:
    """Do nothing if there is such a call.

    Raises:
        Failed: There is none.
        InvalidCallId, StoreError.
    """
    if not await recall.entries(call, 0, 1):
        raise nothing_of(call)


async def reading(recall: Recall, call: str) -> Reading:
    """Return the call as it stands, with what is known of its holder."""
    return await recall._transport.read(call)


def nothing_of(call: str) -> Failed:
    """Return that there is no such call."""
    return Failed(f"there is no call {shown_id(call)} here: `recall-livekit calls` lists them")


def described(url: str) -> str:
    """Return an address for a person, without what is secret in it."""
    directory = directory_of(url) if not is_remote(url) else None
    return str(directory) if directory else public_url(url)
