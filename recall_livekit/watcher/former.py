"""Whether a room had its call already: one that ended or was erased there gets no new agent."""

from __future__ import annotations

from ..engine.entries import Entry, RunEntry, StubEntry
from ..engine.folded import sid_hash
from ..engine.requests import Reading
from ..transport import Transport

__all__ = ["had_its_call"]

PAGE = 256
"""Entries that are read at once, from the end of the chain back."""


async def had_its_call(transport: Transport, call: str, reading: Reading, room_sid: str) -> bool:
    """Whether the newest run in this chain was this room's. Costs O(run), so ask once a run.

    Raises:
        StoreError.
    """
    end = reading.position
    while end > 0:
        start = max(0, end - PAGE)
        page = await transport.entries(call, start, end - start)
        for entry in reversed(page):
            mine = _opens_run_of(entry, room_sid)
            if mine is not None:
                return mine
        end = start
    return False


def _opens_run_of(entry: Entry, room_sid: str) -> bool | None:
    """Whether this entry opens a run of the room; None if it opens none."""
    if isinstance(entry, RunEntry):
        return entry.room_sid == room_sid
    if isinstance(entry, StubEntry) and entry.was == "run":
        return entry.sid_hash == sid_hash(room_sid)
    return None
