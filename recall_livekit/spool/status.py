"""What waits in a spool's directory, for a person: read without holding anything."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .disk import ASIDE, SUFFIX
from .format import Contents, NewerSpool, NotASpool, read_contents, read_record

__all__ = ["FileState", "FileStatus", "status"]

FileState = Literal["held", "waits", "aside", "newer", "unreadable"]
"""A living process has it; for the next drainer; for a person; for a newer version; no spool."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """One file. `call_id` and the rest are what its header says, where it can be read.

    `records` wait to be stored, as far as the file knows; `said_at` is when the first of them was
    said, `written_at` when the file was written last (Unix seconds); `size` is in bytes. `tag` is
    the place that it drains into (see `place_tag`).
    """

    name: str
    state: FileState
    size: int
    written_at: float
    tag: str
    call_id: str | None = None
    writer: str | None = None
    records: int = 0
    said_at: float | None = None


def status(directory: Path) -> Iterator[FileStatus]:
    """Yield what is in the directory, of every place, the oldest first; nothing if it is not there.

    It blocks: it reads the files whole.

    Raises:
        OSError: The directory cannot be read.
    """
    paths = []
    with suppress(FileNotFoundError):
        paths = [path for path in directory.iterdir() if not path.name.startswith(".")]
    for path in sorted(paths, key=_written_at):
        if path.name.endswith((SUFFIX, SUFFIX + ASIDE)):
            with suppress(FileNotFoundError):  # drained meanwhile
                yield _status(path)


def _written_at(path: Path) -> float:
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def _status(path: Path) -> FileStatus:
    known = path.stat()
    plain = FileStatus(
        path.name, "unreadable", known.st_size, known.st_mtime, path.name.partition("-")[0]
    )
    try:
        with path.open("rb") as file:
            held = _is_held(file.fileno())
            contents = read_contents(file.read())
        return _told(plain, contents, "held" if held else "waits")
    except NewerSpool:
        return replace(plain, state="newer")
    except (NotASpool, PermissionError):
        return replace(plain, state="aside") if path.name.endswith(ASIDE) else plain


def _told(plain: FileStatus, contents: Contents, state: FileState) -> FileStatus:
    waiting = contents.waiting
    return replace(
        plain,
        state="aside" if plain.name.endswith(ASIDE) else state,
        call_id=contents.header.call_id,
        writer=contents.header.writer,
        records=len(waiting),
        said_at=read_record(contents.records[waiting[0]]).at if waiting else None,
    )


def _is_held(descriptor: int) -> bool:
    """Try a shared lock: two who look at once do not take each other for a holder."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
