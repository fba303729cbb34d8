"""A view of the data as they were at one moment, which a judge can read in peace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from recall_livekit.stores.base import Cell

__all__ = ["Still"]


class Still:
    """A read-only store over what was written, kept as it was told."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.cells: dict[str, bytes] = {}

    def copy(self) -> Still:
        """Return a view of the data as they are now."""
        view = Still()
        view.entries, view.cells = list(self.entries), dict(self.cells)
        return view

    def everything(self) -> bytes:
        """Return all bytes there are."""
        return b"\n".join((*self.entries, *self.cells.values()))

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        return self.entries[start : start + limit]

    async def get_cell(self, call: str, name: str) -> Cell | None:
        value = self.cells.get(name)
        return None if value is None else Cell(value, "1")

    async def append(self, call: str, position: int, entry: bytes) -> None:
        raise NotImplementedError

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        raise NotImplementedError

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        raise NotImplementedError

    async def scrub(self, call: str) -> None:
        raise NotImplementedError

    async def calls(self) -> AsyncIterator[str]:
        raise NotImplementedError
        yield ""

    async def aclose(self) -> None:
        raise NotImplementedError
