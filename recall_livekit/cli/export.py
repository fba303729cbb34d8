"""``export``: a call's chain as JSON lines, whole, to keep or to load in a test."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Literal, NamedTuple

from ..call_ids import check_call_id
from ..client import Recall
from ..engine.entries import Entry, EraseEntry, RecordsEntry, StubEntry, UnknownEntry, dump_entry
from ..models import Unreadable, Value
from .codes import USAGE, Failed
from .opening import nothing_of, opened, pages
from .paper import note
from .progress import progress
from .texts import json_safe, shown_id

__all__ = ["ExportHeader", "export"]


class ExportHeader(Value):
    """The first line of an export. `entries` lines follow, each an entry of the chain as the
    store has it, from position 0 on."""

    v: Literal[1] = 1
    kind: Literal["chain"] = "chain"
    call_id: str
    entries: int
    exported_at: float
    by: str


class _Survey(NamedTuple):
    """What a first look at the chain found."""

    entries: int
    unreadable: int


async def export(url: str | None, call: str, output: Path | None, *, force: bool) -> None:
    """Write the chain to the file, or to stdout. The file is there whole or not at all.

    Raises:
        Failed: There is no such call, an erasure of it is unfinished, or the file exists.
        RecallError, OSError.
    """
    check_call_id(call)
    output = None if output == Path("-") else output
    if not force:
        _refuse_existing(output)
    async with opened(url) as recall:
        survey = await _survey(recall, call)
        with _writing(output, force=force) as write:
            write(_header(call, survey).model_dump_json())
            await _copy(recall, call, survey.entries, write)
    if survey.unreadable:
        note(f"{survey.unreadable} entries or records are newer than this version, and not whole")
    if output is not None:
        note(f"{survey.entries} entries of {shown_id(call)} are in {output}")


def _refuse_existing(output: Path | None) -> None:
    if output is not None and output.exists():
        raise Failed(f"{output} exists: --force overwrites it", USAGE)


async def _survey(recall: Recall, call: str) -> _Survey:
    """Look for what may not be exported: content below an erasure that was not carried out."""
    entries = unreadable = 0
    content = unfinished = False
    async for _, page in pages(recall, call):
        entries += len(page)
        for entry in page:
            unreadable += _unreadable(entry)
            if isinstance(entry, EraseEntry):
                unfinished, content = content, False
            else:
                content = content or not isinstance(entry, StubEntry)
    if not entries:
        raise nothing_of(call)
    if unfinished:
        raise Failed(
            f"{shown_id(call)} is being erased, or its erasure was interrupted: "
            "`recall-livekit erase` finishes it"
        )
    return _Survey(entries, unreadable)


def _unreadable(entry: Entry) -> int:
    if isinstance(entry, RecordsEntry):
        return sum(isinstance(record, Unreadable) for record in entry.records)
    return isinstance(entry, UnknownEntry)


def _header(call: str, survey: _Survey) -> ExportHeader:
    try:
        ours = version("recall-livekit")
    except PackageNotFoundError:
        ours = "?"
    return ExportHeader(
        call_id=call,
        entries=survey.entries,
        exported_at=time.time(),
        by=f"recall-livekit {ours}",
    )


async def _copy(recall: Recall, call: str, entries: int, write: Callable[[str], None]) -> None:
    with progress("exporting", entries) as advance:
        async for start, page in pages(recall, call):
            for entry in page[: entries - start]:
                write(dump_entry(entry).decode())
            advance(len(page))
            if start + len(page) >= entries:
                return
    raise Failed(f"{shown_id(call)} has fewer entries than a moment ago: export it again")


@contextmanager
def _writing(output: Path | None, *, force: bool) -> Iterator[Callable[[str], None]]:
    """Yield what writes a line. A file gets its name only when all of it is written."""
    if output is None:
        yield lambda line: _write(sys.stdout, line)
        return
    try:
        with _beside(output) as file:
            yield lambda line: _write(file, line)
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
        "w", dir=output.parent, prefix=f".{output.name[:64]}.", encoding="utf-8", delete=False
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


def _write(file: IO[str], line: str) -> None:
    file.write(json_safe(line) + "\n")
