"""The entries of a chain, and their stored form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag, TypeAdapter, ValidationError

from ..errors import InvalidRecord
from ..models import LooseTime, Outcome, Record, Value, known_kind

__all__ = [
    "Entry",
    "EntryBase",
    "EraseEntry",
    "LeaseEntry",
    "RecordsEntry",
    "ReleaseEntry",
    "RunEntry",
    "StubEntry",
    "UnknownEntry",
    "dump_entry",
    "load_entry",
]


class EntryBase(Value):
    """What every entry has. `epoch` is the call's epoch once the entry counts."""

    v: Literal[1] = 1
    epoch: int
    at: float


class RecordsEntry(EntryBase):
    """A batch of records of one writer, numbered from `first`.

    Under the lease `provisional_run` is None. Otherwise it names the run that the records
    belong to, and `epoch` is the epoch that the writer had read (rule 6).
    """

    kind: Literal["records"] = "records"
    writer: str
    first: int
    records: tuple[Record, ...]
    provisional_run: int | None = None

    @property
    def last(self) -> int:
        """The number of its last record."""
        return self.first + len(self.records) - 1


class RunEntry(EntryBase):
    """A new use of the call id begins."""

    kind: Literal["run"] = "run"
    writer: str
    run: int
    room_sid: str | None = None
    caller: str | None = None


class LeaseEntry(EntryBase):
    """`writer` may write under `epoch` from here on; it is the first renewal too (rule 9).

    Its sign of life is the OS lock named `lock`, or a `stream` that it holds open to a server."""

    kind: Literal["lease"] = "lease"
    writer: str
    attempt: str
    run: int
    ttl: float
    lock: str | None = None
    stream: bool = False
    agent_name: str | None = None


class ReleaseEntry(EntryBase):
    """The holder gave the lease back; it closes the epoch."""

    kind: Literal["release"] = "release"
    writer: str
    outcome: Outcome


class EraseEntry(EntryBase):
    """All content below is erased for ever (rules 12 and 13)."""

    kind: Literal["erase"] = "erase"


class StubEntry(EntryBase):
    """What is left of an erased entry: enough to fold the chain, nothing that was said."""

    kind: Literal["stub"] = "stub"
    was: str
    writer: str | None = None
    first: int = 0
    count: int = 0
    run: int | None = None
    sid_hash: str | None = None


class UnknownEntry(Value):
    """An entry newer than this reader; its epoch still fences."""

    kind: str = "?"
    v: int = 0
    epoch: int = 0
    at: LooseTime = 0.0


_ENTRIES = ("records", "run", "lease", "release", "erase", "stub")


def _entry_tag(value: Any) -> str:
    return known_kind(value, _ENTRIES, "unknown")


Entry = Annotated[
    Annotated[RecordsEntry, Tag("records")]
    | Annotated[RunEntry, Tag("run")]
    | Annotated[LeaseEntry, Tag("lease")]
    | Annotated[ReleaseEntry, Tag("release")]
    | Annotated[EraseEntry, Tag("erase")]
    | Annotated[StubEntry, Tag("stub")]
    | Annotated[UnknownEntry, Tag("unknown")],
    Discriminator(_entry_tag),
]

_entry_adapter: TypeAdapter[Entry] = TypeAdapter(Entry)


def dump_entry(entry: Entry) -> bytes:
    """Return the stored form of an entry."""
    return entry.model_dump_json(exclude_defaults=False, exclude_none=True).encode()


def load_entry(data: bytes) -> Entry:
    """Return the entry of its stored form.

    Raises:
        InvalidRecord: These bytes are no entry.
    """
    try:
        return _entry_adapter.validate_json(data)
    except ValidationError as error:
        raise InvalidRecord(f"not an entry of a chain: {error.error_count()} faults") from error
