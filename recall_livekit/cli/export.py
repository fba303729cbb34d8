"""``export``: a call's chain as JSON lines, whole, and what is kept beside it, to keep or load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, NamedTuple

from ..call_ids import check_call_id
from ..client import Recall
from ..engine.entries import Entry, EraseEntry, RecordsEntry, StubEntry, UnknownEntry, dump_entry
from ..errors import OutputMissing
from ..models import Action, Output, Partial, Unreadable, Value
from .codes import Failed
from .files import destination, writing
from .opening import nothing_of, opened, pages, reading
from .paper import note
from .progress import progress
from .texts import json_safe, shown_id

__all__ = ["ExportHeader", "ExportedOutput", "ExportedPartial", "export", "refs_of"]


class ExportHeader(Value):
    """The first line of an export. `entries` lines follow, each an entry of the chain as the
    store has it, from position 0 on; then any number of `ExportedPartial` and `ExportedOutput`."""

    v: Literal[1] = 1
    kind: Literal["chain"] = "chain"
    call_id: str
    entries: int
    exported_at: float
    by: str


class ExportedOutput(Value):
    """A line after the entries: a text that is kept beside the chain, and that a record names."""

    v: Literal[1] = 1
    kind: Literal["output"] = "output"
    ref: str
    text: str


class ExportedPartial(Partial):
    """A line after the entries: words under way when it was exported, or its worker died."""

    v: Literal[1] = 1
    kind: Literal["partial"] = "partial"


class _Survey(NamedTuple):
    """What a first look at the chain found: `refs` are of the outputs that its records name."""

    entries: int
    unreadable: int
    refs: Sequence[str]


async def export(url: str | None, call: str, output: Path | None, *, force: bool) -> None:
    """Write the chain to the file, or to stdout. The file is there whole or not at all.

    Raises:
        Failed: There is no such call, an erasure of it is unfinished, or the file exists.
        RecallError, OSError.
    """
    check_call_id(call)
    output = destination(output, force=force)
    async with opened(url) as recall:
        survey = await _survey(recall, call)
        with writing(output, force=force) as write:

            def line(data: str) -> None:
                write(json_safe(data) + "\n")

            line(_header(call, survey).model_dump_json())
            await _copy(recall, call, survey.entries, line)
            missing = await _copy_beside(recall, call, survey.refs, line)
    if missing:
        note(f"{missing} outputs that the chain names are not there")
    if survey.unreadable:
        note(f"{survey.unreadable} entries or records are newer than this version, and not whole")
    if output is not None:
        note(f"{survey.entries} entries of {shown_id(call)} are in {output}")


async def _survey(recall: Recall, call: str) -> _Survey:
    """Look for what may not be exported: content below an erasure that was not carried out."""
    entries = unreadable = 0
    refs: dict[str, None] = {}
    content = unfinished = False
    async for _, page in pages(recall, call):
        entries += len(page)
        for entry in page:
            unreadable += _unreadable(entry)
            refs |= dict.fromkeys(refs_of(entry))
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
    return _Survey(entries, unreadable, tuple(refs))


def _unreadable(entry: Entry) -> int:
    if isinstance(entry, RecordsEntry):
        return sum(isinstance(record, Unreadable) for record in entry.records)
    return isinstance(entry, UnknownEntry)


def refs_of(entry: Entry) -> Iterator[str]:
    """Yield the refs of the outputs that the entry's records name."""
    for record in entry.records if isinstance(entry, RecordsEntry) else ():
        if isinstance(record, Output):
            yield record.ref
        if isinstance(record, Action) and record.result_ref:
            yield record.result_ref


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


async def _copy_beside(
    recall: Recall, call: str, refs: Sequence[str], write: Callable[[str], None]
) -> int:
    """Write what is kept beside the chain; return how many outputs are not there."""
    for partial in (await reading(recall, call)).briefing.partials:
        write(ExportedPartial(**partial.model_dump()).model_dump_json())
    missing = 0
    for ref in refs:
        try:
            text = await recall.fetch_output(call, ref)
        except OutputMissing:
            missing += 1
        else:
            write(ExportedOutput(ref=ref, text=text).model_dump_json())
    return missing
