"""The form of a spool file: a header, then a line for each record and for each change of the facts.

A line is the CRC-32 of its JSON object in eight hex digits, a space, the object, and a newline.
A tail that is torn (power cut, full disk) was never called durable, and is cut off. What is
damaged before good lines is found by its checksum and by the numbers that are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from zlib import crc32

from pydantic import TypeAdapter, ValidationError

from ..models import Outcome, Record, Unreadable, Value

__all__ = [
    "VERSION",
    "Contents",
    "Facts",
    "Header",
    "LostTenure",
    "NewerSpool",
    "NotASpool",
    "facts_line",
    "header_line",
    "read_contents",
    "read_record",
    "record_line",
]

VERSION = 1
_RECORD_LINE = re.compile(rb'\{"n":([0-9]{1,16}),"record":(.*)\}', re.DOTALL)
_record: TypeAdapter[Record] = TypeAdapter(Record)


class NotASpool(ValueError):
    """No file of this format, or one whose header is damaged: a person has to look."""


class NewerSpool(ValueError):
    """Written by a newer version: it is left to a process that can read it."""


class _Version(Value):
    v: int


class Header(Value):
    """Whose records these are, and the place that they go to (`tag`), and no other."""

    v: int = VERSION
    tag: str
    call_id: str
    writer: str
    room_sid: str | None = None
    caller: str | None = None


class LostTenure(Value):
    """Records up to `number` belong to this run and epoch, which the writer lost (late ones)."""

    number: int
    run: int
    epoch: int


class Facts(Value):
    """What the writer knew; the newest line counts. `run` is 0 if it knew none, `read_position`
    where its first read ended, `outcome` how it closed the call, at `closed_at`."""

    run: int = 0
    epoch: int = 0
    holding: bool = False
    read_position: int | None = None
    acknowledged: int = 0
    lost: tuple[LostTenure, ...] = ()
    outcome: Outcome | None = None
    closed_at: float = 0.0


class _HeaderLine(Value):
    header: Header


class _FactsLine(Value):
    facts: Facts


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a spool file. `records` are their stored forms by number."""

    header: Header
    facts: Facts
    records: Mapping[int, bytes]
    size: int
    """Where the next line goes: what is behind it is torn."""
    damaged: int
    """How many lines cannot be read though later ones can."""

    @property
    def waiting(self) -> list[int]:
        """The numbers of the records that nobody has acknowledged, as far as this file knows."""
        return sorted(n for n in self.records if n > self.facts.acknowledged)


def header_line(header: Header) -> bytes:
    """Return the first line of a file."""
    return _line(_HeaderLine(header=header).model_dump_json().encode())


def facts_line(facts: Facts) -> bytes:
    """Return a line that replaces the facts before it."""
    return _line(_FactsLine(facts=facts).model_dump_json().encode())


def record_line(number: int, record: Record) -> bytes:
    """Return a record's line; one of the same number replaces the one before it."""
    return _line(b'{"n":%d,"record":%b}' % (number, record.model_dump_json().encode()))


def _line(body: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(body), body)


def read_contents(data: bytes) -> Contents:
    """Return what is in a file.

    Raises:
        NotASpool: Its header cannot be read.
        NewerSpool: Its header is of a newer version.
    """
    lines = _good_lines(data)
    header = _read_header(next(lines, (b"", 0))[0])
    facts, records, size, good = Facts(), dict[int, bytes](), 0, 0
    for body, size in _good_lines(data):  # noqa: B007
        if (found := _RECORD_LINE.fullmatch(body)) is not None:
            records[int(found[1])] = found[2]
        elif body.startswith(b'{"facts":'):
            facts = _read_facts(body, facts)
        good += 1
    return Contents(header, facts, records, size, data.count(b"\n", 0, size) - good)


def read_record(data: bytes) -> Record:
    """Return a record of its stored form.

    Raises:
        NewerSpool: It is of a newer version: as it is read here, half of it would be lost.
    """
    try:
        record = _record.validate_json(data)
    except ValidationError as error:
        raise NewerSpool(f"a record has {error.error_count()} faults") from error
    if isinstance(record, Unreadable):
        raise NewerSpool(f"a record of kind {record.kind}, version {record.v}")
    return record


def _good_lines(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each line's object whose checksum fits, and where the line ends."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        body = data[start + 9 : end]
        if data[start : start + 9] == b"%08x " % crc32(body):
            yield body, end + 1
        start = end + 1


def _read_header(body: bytes) -> Header:
    try:
        if (version := _VersionLine.model_validate_json(body).header.v) > VERSION:
            raise NewerSpool(f"version {version}, this is {VERSION}")
        return _HeaderLine.model_validate_json(body).header
    except ValidationError as error:
        raise NotASpool("its first line is not the header of a spool file") from error


def _read_facts(body: bytes, before: Facts) -> Facts:
    try:
        return _FactsLine.model_validate_json(body).facts
    except ValidationError:
        return before  # a newer version's: what was known before is safe, if less


class _VersionLine(Value):
    header: _Version
