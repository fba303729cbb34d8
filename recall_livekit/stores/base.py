"""The store contract: what a store promises to the engine. A store knows no rules.

A store keeps, for one namespace and each call:

* **entries** at positions 0, 1, 2 ...: bytes. `append` creates the entry at a position if and
  only if nothing is there and the one before it is there; the check and the write are one
  atomic step, whatever other threads, processes or machines do at the same time. Once `append`
  returned, the entry survives SIGKILL of every process and is seen by every later `read`.
* **cells**: small named bytes with a version. `put_cell` writes if and only if the cell has
  the version that the caller names (None: if it does not exist). A version is never used twice
  for one cell. What must be created once and never changed (an output) is a cell that is only
  ever put with None.

`replace` overwrites entries for erasure. Together with `put_cell` and `scrub` it is all that
erasure needs: after `scrub` returns, no byte of what was replaced or overwritten is left in the
store's files or objects.

A failure whose outcome is unknown (timeout, busy, disk full, connection lost) is raised as
`StoreUnavailable`; the caller finds out by reading. Every method is bounded: it answers or
raises within the store's own timeout. Call ids are any string of 1 to 256 bytes; two different
ids never share data, on no file system and in no bucket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Cell", "Locks", "Store"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's value and the version to name when changing it."""

    value: bytes
    version: str


class Store(Protocol):
    """See the module: the contract in prose."""

    async def append(self, call: str, position: int, entry: bytes) -> None:
        """Create the entry at `position`.

        Raises:
            Conflict: Something is at `position`, or nothing at `position - 1`.
            StoreUnavailable: Outcome unknown.
            StoreUnusable: A person has to look.
        """

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        """Return at most `limit` entries from position `start` on, in order, without a gap.

        What is returned is durable. A call that was never written has no entries.
        """

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        """Overwrite the existing entries from `start` on; repeating it changes nothing.

        Raises:
            Conflict: One of the positions has no entry; nothing was overwritten before it.
        """

    async def get_cell(self, call: str, name: str) -> Cell | None:
        """Return the cell, or None. `name` matches ``[a-z]+(/[0-9]+)*``."""

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        """Write the cell if it has this version (None: if there is none); return the new version.

        Raises:
            Conflict: It has another version, or exists and None was named.
        """

    async def scrub(self, call: str) -> None:
        """Return once no byte of what was replaced or overwritten remains."""

    def calls(self) -> AsyncIterator[str]:
        """Yield every call id that has at least one entry, in no particular order."""

    async def aclose(self) -> None:
        """Finish what was accepted, release threads, files and connections."""


@runtime_checkable
class Locks(Protocol):
    """Evidence that a holder's process lives, from the operating system. Optional.

    A lock is the holder's own (rule 10): its name (``[A-Za-z0-9_-]{1,64}``) is chosen by the
    holder and never used again. It says who lives, never who may write. None of these blocks
    the event loop or its default thread pool.
    """

    async def hold(self, name: str) -> None:
        """Take the lock for as long as this process lives or until `let_go`."""

    async def let_go(self, name: str) -> None:
        """Give the lock back, so that waiters see within some 10 ms that it is free."""

    async def held(self, name: str) -> bool:
        """Whether a living process has it; a lock that is not there is not held."""

    async def wait_free(self, name: str) -> None:
        """Return within some 10 ms of nobody living having it."""

    async def remove(self, name: str) -> None:
        """Remove it after its call was taken: its holder, if it lives after all, is told."""

    async def wait_removed(self, name: str) -> None:
        """Return within some 50 ms of somebody having removed this process's own lock."""
