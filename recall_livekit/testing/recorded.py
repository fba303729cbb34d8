"""A recorded call as it is found: in a file that `recall-livekit export` wrote, or in a store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import from_json

from ..client import Recall
from ..engine.entries import Entry, EraseEntry, StubEntry, load_entry
from ..engine.outputs import checked_ref
from ..errors import InvalidInput, InvalidRecord, OutputMissing
from ..models import VERSION, Partial

__all__ = ["Recorded", "file_of", "read_file", "read_store"]

PAGE = 256


@dataclass(frozen=True)
class Recorded:
    """A call's chain, whole, and what is kept beside it. `named` says where it was found."""

    named: str
    call_id: str
    entries: Sequence[Entry]
    partials: Sequence[Partial] = ()
    outputs: dict[str, str] = field(default_factory=dict)
    """The texts by their refs."""


def file_of(source: str | os.PathLike[str]) -> Path | None:
    """Return the path that is meant, or None of the address of a store."""
    text = os.fspath(source)
    is_address = isinstance(source, str) and ("://" in text or text.startswith("sqlite:"))
    return None if is_address else Path(text)


def read_file(path: Path) -> Recorded:
    """Read an export.

    Raises:
        InvalidInput: It cannot be read, or is no export; says what is wrong, and where.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error
    call_id, count = _header(path, lines[0])
    entries = [_entry(path, number, line) for number, line in _numbered(lines[1 : count + 1])]
    if len(entries) < count:
        raise InvalidInput(f"{path} is cut: it has {len(entries)} of {count} entries")
    beside = [_beside(path, number, line) for number, line in _numbered(lines[count + 1 :], count)]
    return Recorded(
        named=str(path),
        call_id=call_id,
        entries=_readable(str(path), entries),
        partials=[one for one in beside if isinstance(one, Partial)],
        outputs=dict(one for one in beside if isinstance(one, tuple)),
    )


async def read_store(recall: Recall, call_id: str) -> Recorded:
    """Read a call where it is recorded, changing nothing.

    Raises:
        InvalidInput: There is no such call, or it is being erased.
        InvalidCallId, StoreError.
    """
    named = f"call {call_id!r}"
    entries: list[Entry] = []
    while page := await recall.entries(call_id, len(entries), PAGE):
        entries += page
    if not entries:
        raise InvalidInput(f"there is no {named} here: `recall-livekit calls` lists them")
    return Recorded(
        named=named,
        call_id=call_id,
        entries=_readable(named, entries),
        partials=(await recall.read(call_id)).partials,
        outputs=await _outputs(recall, call_id, entries),
    )


def _header(path: Path, line: str) -> tuple[str, int]:
    from ..cli.export import ExportHeader  # the command line's, and only a file has one

    try:
        header = ExportHeader.model_validate_json(line)
    except ValidationError as error:
        why = (
            "it was written by a newer version: upgrade recall-livekit"
            if _is_newer(line)
            else "its first line is not what `recall-livekit export CALL -o FILE` writes"
        )
        raise InvalidInput(f"{path} is no export that can be read: {why}") from error
    return header.call_id, header.entries


def _is_newer(line: str) -> bool:
    try:
        told = from_json(line)
    except ValueError:
        return False
    version = told.get("v") if isinstance(told, dict) and told.get("kind") == "chain" else 1
    return isinstance(version, int) and version > 1


def _numbered(lines: Sequence[str], before: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not empty, with their numbers in it."""
    for number, line in enumerate(lines, before + 2):
        if line.strip():
            yield number, line


def _entry(path: Path, number: int, line: str) -> Entry:
    try:
        return load_entry(line.encode())
    except InvalidRecord as error:
        raise InvalidInput(f"{path}, line {number}: {error}") from error


def _beside(path: Path, number: int, line: str) -> Partial | tuple[str, str] | None:
    """Return what is kept beside the chain; None of what this version does not know."""
    try:
        told = from_json(line)
        if told.get("v", 1) == VERSION and told.get("kind") == "partial":
            return Partial.model_validate(told)
        if told.get("v", 1) == VERSION and told.get("kind") == "output":
            return checked_ref(told["ref"]), str(told["text"])
    except (ValueError, LookupError, AttributeError, OutputMissing) as error:
        raise InvalidInput(f"{path}, line {number}: not a line of an export") from error
    return None


def _readable(named: str, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries, unless they hold what was to be erased."""
    for position, entry in enumerate(entries):
        if isinstance(entry, EraseEntry):
            below = entries[:position]
            if not all(isinstance(one, StubEntry | EraseEntry) for one in below):
                raise InvalidInput(
                    f"{named} is being erased: `recall-livekit erase` finishes it, and nothing of "
                    "it may be loaded"
                )
    return entries


async def _outputs(recall: Recall, call_id: str, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the outputs that the entries name, as far as they are there."""
    from ..cli.export import refs_of

    found: dict[str, str] = {}
    for ref in dict.fromkeys(ref for entry in entries for ref in refs_of(entry)):
        with suppress(OutputMissing):
            found[ref] = await recall.fetch_output(call_id, ref)
    return found
