"""The floor of a durable write: a bare commit of the same bytes (apsw, WAL, synchronous=FULL)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from recall_livekit import Turn
from recall_livekit.engine.entries import RecordsEntry, dump_entry


class RawLog:
    """One file with one table, and one connection to it."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "FULL")
        self._db.execute("CREATE TABLE entries (position INTEGER PRIMARY KEY, entry BLOB)")

    def commit(self, data: bytes) -> None:
        """Returns when `data` is on the disk."""
        self._db.execute("INSERT INTO entries (entry) VALUES (?)", (data,))

    def close(self) -> None:
        self._db.close()


@contextmanager
def raw_logs(directory: Path, count: int = 1) -> Iterator[list[RawLog]]:
    logs = [RawLog(directory / f"raw-{number}.db") for number in range(count)]
    try:
        yield logs
    finally:
        for log in logs:
            log.close()


_numbers = itertools.count(1)


def entry_of(text: str) -> bytes:
    """The bytes that a turn becomes in the store."""
    turn = Turn(at=1.7e9, role="user", content=text, message_id="item_0123456789ab")
    entry = RecordsEntry(epoch=1, at=1.7e9, writer="w" * 16, first=next(_numbers), records=(turn,))
    return dump_entry(entry)
