"""Files that a command writes: there whole or not at all, and only for their owner to read."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .codes import USAGE, Failed

__all__ = ["destination", "writing"]


def destination(output: Path | None, *, force: bool) -> Path | None:
    """Return where to write: None is stdout, for which "-" stands too.

    Raises:
        Failed: There is such a file, and it is not to be overwritten.
    """
    output = None if output == Path("-") else output
    if not force:
        _refuse_existing(output)
    return output


def _refuse_existing(output: Path | None) -> None:
    if output is not None and output.exists():
        raise Failed(f"{output} exists: --force overwrites it", USAGE)


@contextmanager
def writing(output: Path | None, *, force: bool) -> Iterator[Callable[[str], object]]:
    """Yield what writes a text, to stdout if there is no path. A file gets its name only when all
    of it is written.

    Raises:
        Failed: It cannot be written, or exists.
    """
    if output is None:
        yield sys.stdout.write
        return
    try:
        with _beside(output) as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
            _name(Path(file.name), output, force=force)
    except OSError as error:
        raise Failed(f"{output} cannot be written: {error.strerror or error}") from error


@contextmanager
def _beside(output: Path) -> Iterator[IO[str]]:
    """Yield a new file in the same directory that only this user may read; it goes at the end,
    unless it was renamed."""
    with tempfile.NamedTemporaryFile(
        "w",
        dir=output.parent,
        prefix=f".{output.name[:64]}.",
        encoding="utf-8",
        newline="",
        delete=False,
    ) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


def _name(file: Path, output: Path, *, force: bool) -> None:
    """Give the file its name. Only a link does so without overwriting what came meanwhile; not
    every file system has links."""
    if not force:
        with suppress(OSError):
            output.hardlink_to(file)
            return
        _refuse_existing(output)
    file.replace(output)
