"""The sign of life of a holder that talks to a server: a stream that it keeps open.

One cell an epoch says whether the stream is open, broken, or gone for good. It names the stream's
generation, and is only ever overwritten by compare-version: a stream that broke before the holder
came back says nothing about the one that followed (rule 10).
"""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationError

from ..errors import Conflict
from ..models import Value
from ..stores.base import Cell, Store

__all__ = [
    "StreamState",
    "close_stream",
    "open_stream",
    "read_stream",
    "reopen_stream",
    "stream_cell",
]


class StreamState(Value):
    """What is known of a holder's stream. `gone` is broken for longer than a live holder needs."""

    v: Literal[1] = 1
    generation: int = 0
    state: Literal["open", "broken", "gone"] = "open"


def stream_cell(epoch: int) -> str:
    """Return the name of an epoch's stream cell."""
    return f"stream/{epoch}"


def read_stream(cell: Cell | None) -> StreamState | None:
    """Return what the cell says; None if there is none that this version can read."""
    try:
        return StreamState.model_validate_json(cell.value) if cell else None
    except ValidationError:
        return None


async def open_stream(store: Store, call: str, epoch: int) -> int:
    """Say that the holder is there; return the generation of its new stream.

    Raises:
        StoreError.
    """
    while True:
        cell = await store.get_cell(call, stream_cell(epoch))
        known = read_stream(cell) or StreamState()
        opened = StreamState(generation=known.generation + 1)
        if await _put(store, call, epoch, opened, cell):
            return opened.generation


async def reopen_stream(store: Store, call: str, epoch: int) -> None:
    """A renewal came after the stream broke: the holder lives, though its stream does not.

    Raises:
        StoreError.
    """
    stream = read_stream(await store.get_cell(call, stream_cell(epoch)))
    if stream is not None and stream.state != "open":
        await open_stream(store, call, epoch)


async def close_stream(
    store: Store, call: str, epoch: int, generation: int, state: Literal["broken", "gone"]
) -> bool:
    """Say that this very stream broke, or is gone; False if a newer one was opened since.

    Raises:
        StoreError.
    """
    cell = await store.get_cell(call, stream_cell(epoch))
    known = read_stream(cell)
    if known is None or known.generation != generation:
        return False
    return await _put(store, call, epoch, StreamState(generation=generation, state=state), cell)


async def _put(store: Store, call: str, epoch: int, state: StreamState, cell: Cell | None) -> bool:
    data = state.model_dump_json().encode()
    try:
        await store.put_cell(call, stream_cell(epoch), data, cell.version if cell else None)
    except Conflict:
        return False
    return True
