"""What may be recorded: checked on the caller's side, before anything is queued."""

from __future__ import annotations

from pydantic import JsonValue, TypeAdapter

from .errors import InvalidRecord
from .models import RECORD_CHARS, Record, RecordBase

__all__ = ["checked_record", "storable_name", "storable_text"]

NAME_CHARS = 256

ENTRY_DEPTH = 8
_json: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_record: TypeAdapter[Record] = TypeAdapter(Record)


def checked_record(kind: type[RecordBase], at: float, what: dict[str, object]) -> Record:
    """Return the record as a reader will read it, or say what is wrong with it.

    It goes through its stored form once, inside an entry's depth: what a store accepts and no
    reader can read would end the call for good.
    """
    try:
        data = kind.model_validate({"at": at, **what}).model_dump_json()
        _json.validate_json("[" * ENTRY_DEPTH + data + "]" * ENTRY_DEPTH)
        record = _record.validate_json(data)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidRecord(f"{kind.__name__} cannot be recorded: {error}") from error
    if len(data) > 2 * RECORD_CHARS:
        raise InvalidRecord(f"{kind.__name__} has {len(data)} bytes, {2 * RECORD_CHARS} are kept")
    return record


def storable_name(name: str | None) -> str | None:
    """Return a name from elsewhere (a room's sid, a caller) as every store can keep it."""
    if name is None:
        return None
    return storable_text(name)[:NAME_CHARS]


def storable_text(text: str) -> str:
    """Return `text` as every store can keep it: valid Unicode, at most `RECORD_CHARS`."""
    if not isinstance(text, str):
        raise InvalidRecord(f"a text is a str, not {type(text).__name__}")
    if len(text) > RECORD_CHARS:
        text = f"{text[:RECORD_CHARS]} [cut here: {len(text)} characters]"
    return text.encode("utf-8", "backslashreplace").decode()
