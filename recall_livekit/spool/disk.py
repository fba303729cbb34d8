"""Where spool files lie, as the rest of the spool sees it: a machine's disk, or a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["ASIDE", "SUFFIX", "Disk", "Listed", "SpoolFile"]

SUFFIX = ".spool"
ASIDE = ".aside"
"""Behind the name of a file that is kept for a person to look at."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in the directory: its size in bytes, and when it was last written (Unix seconds)."""

    name: str
    size: int
    written_at: float


class SpoolFile(Protocol):
    """One handle on one file. Whoever holds a file has it alone, on the whole machine, until it
    lets go or its process is gone; what is written is durable when the call returns.

    All of them raise StoreError where the disk does not do its work. One that was cancelled may
    have been done all the same.
    """

    @property
    def name(self) -> str:
        """The file's name."""

    async def create(self, data: bytes) -> None:
        """Make the file with `data` in it, and hold it; what this handle made before is replaced.

        Raises:
            OutboxFull: The directory has reached its bound.
        """

    async def take(self, read: Callable[[bytes], T]) -> T | None:
        """Hold the file and return what `read` makes of its bytes, beside the event loop.

        None if a living process holds it, this one included, or if it is not there (any more).
        """

    async def append(self, at: int, data: bytes) -> None:
        """Write `data` at the offset `at` of a held file, and cut off whatever was there.

        Raises:
            Conflict: The file is not there any more, or not held by this handle.
            OutboxFull: The directory has reached its bound.
        """

    async def remove(self) -> None:
        """Delete the file, if this handle holds it."""

    async def set_aside(self) -> None:
        """Rename the file, if this handle holds it: only a person makes it be tried again."""

    async def let_go(self) -> None:
        """Hold it no more, if this handle does."""


class Disk(Protocol):
    """A directory of spool files."""

    def file(self, name: str) -> SpoolFile:
        """Return a new handle, which holds nothing yet."""

    async def listed(self) -> Sequence[Listed]:
        """Return the files, those set aside too, the ones that wait longest first.

        Raises:
            StoreError.
        """

    async def aclose(self) -> None:
        """Let go of everything."""
