"""One call's SQLite file: its statements, and how it is made and opened.

Only the threads of a `SqliteStore` import this module, because it imports apsw.

No file of a call may be opened by anything but SQLite while this process has it open: closing a
plain file drops all POSIX locks that the process has on it, SQLite's own among them.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from ..errors import Conflict, StoreUnusable
from .base import Cell
from .jobs import Busy, each

__all__ = ["CallFile", "create_file", "open_file", "refuse_affected_sqlite", "sync_directory"]

APPLICATION_ID = 0x52636C31
"""`Rcl1`: written into every file, so that a foreign one is known for what it is."""
FORMAT = 1
"""The file's `user_version`; a newer one is refused."""

# `call` has one row, the id whose file this is. A cell is never deleted and its version only
# grows, so that a version is never used twice.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT};
CREATE TABLE call (id BLOB NOT NULL) STRICT;
CREATE TABLE entries (position INTEGER PRIMARY KEY, entry BLOB NOT NULL) STRICT;
CREATE TABLE cells (name TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;
"""
NAME_CALL = "INSERT INTO call (id) VALUES (?)"
CALL = "SELECT id FROM call"
HAS_ENTRY = "SELECT EXISTS (SELECT 1 FROM entries WHERE position = 0)"

# One statement checks and writes: the position is free and the one before it is taken.
APPEND = """
INSERT INTO entries (position, entry)
SELECT ?1, ?2 WHERE ?1 = 0 OR EXISTS (SELECT 1 FROM entries WHERE position = ?1 - 1)
ON CONFLICT DO NOTHING
"""
READ = "SELECT entry FROM entries WHERE position >= ? ORDER BY position LIMIT ?"
COUNT = "SELECT count(*) FROM entries WHERE position >= ?1 AND position < ?1 + ?2"
REPLACE = "UPDATE entries SET entry = ?2 WHERE position = ?1"

GET_CELL = "SELECT value, version FROM cells WHERE name = ?"
CREATE_CELL = """
INSERT INTO cells (name, value, version) VALUES (?, ?, 1) ON CONFLICT DO NOTHING RETURNING version
"""
CHANGE_CELL = """
UPDATE cells SET value = ?2, version = version + 1
WHERE name = ?1 AND CAST(version AS TEXT) = ?3 RETURNING version
"""

# First of all nothing may wait: a thread that waits for one call's lock holds up all the others.
# FULL: a commit is on the disk. A file is made with its WAL mode, so `journal_mode` only looks.
SETTINGS = """
PRAGMA busy_timeout = 0;
PRAGMA synchronous = FULL;
PRAGMA secure_delete = ON;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -512;
"""

_temporary = itertools.count()


def refuse_affected_sqlite(version: str) -> None:
    """Refuse a SQLite that can lose commits when two processes write and checkpoint one WAL.

    The WAL-reset bug: 3.7.0 to 3.51.2, fixed in 3.51.3 and again in 3.50.7 and 3.44.6.

    Raises:
        StoreUnusable: This version has it.
    """
    major, minor, patch = (*(int(part) for part in version.split(".")), 0, 0)[:3]
    fixed = {(3, 44): 6, (3, 50): 7, (3, 51): 3}.get((major, minor))
    if (patch < fixed) if fixed is not None else (major, minor) < (3, 51):
        raise StoreUnusable(
            f"SQLite {version} can lose commits of two processes (WAL-reset bug): "
            "upgrade apsw to one with SQLite 3.51.3 or later"
        )


def create_file(
    path: Path, call: str, works: Sequence[Callable[[CallFile], Any]]
) -> list[Any] | None:
    """Make the call's file with all that `works` write, durably, whole or not at all.

    It is made in memory, written beside, and linked to its name: no other process ever sees half
    of it, and the call's first append costs no more than that. Returns what each work returned,
    or its Conflict; None if somebody else's file was there first, and nothing was done.
    """
    file, outcomes = _made_in_memory(path, call, works)
    beside = path.with_name(f"{path.stem}.{os.getpid()}-{next(_temporary)}.new")
    try:
        _write_durably(beside, file)
        os.link(beside, path)
    except FileExistsError:
        return None
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)
    return outcomes


def _made_in_memory(
    path: Path, call: str, works: Sequence[Callable[[CallFile], Any]]
) -> tuple[bytes, list[Any]]:
    db = apsw.Connection(":memory:")
    try:
        db.execute(SCHEMA).fetchall()
        db.execute(NAME_CALL, (call.encode(),))
        outcomes = CallFile(path, db).together(works)
        image = bytearray(db.serialize("main"))
    finally:
        db.close()
    image[18:20] = b"\2\2"  # The header's read and write version: WAL.
    return bytes(image), outcomes


def open_file(path: Path) -> CallFile:
    """Open the file of a call.

    Raises:
        StoreUnusable: It is not a Recall file, or a newer one.
    """
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.execute(SETTINGS).fetchall()
        _refuse_foreign(db, path)
    except BaseException:
        db.close()
        raise
    return CallFile(path, db)


def _refuse_foreign(db: apsw.Connection, path: Path) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise StoreUnusable(f"{path} is not a Recall file: move it away")
    version = db.pragma("user_version")
    if version > FORMAT:
        raise StoreUnusable(f"{path} has format {version}, this Recall reads {FORMAT}: upgrade it")
    if db.pragma("journal_mode", "wal") != "wal":
        raise StoreUnusable(f"{path}: no WAL there: put the directory on a local disk")


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb", buffering=0) as file:
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, "short write", str(path))
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make durable which names the directory has."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class CallFile:
    """A connection to the file of one call. Conflicts are raised as such, the rest as it comes."""

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self.path = path
        self._db = db

    @property
    def call(self) -> str:
        """Whose file it is."""
        return bytes(self._db.execute(CALL).get).decode()

    def close(self) -> None:
        """Close the connection; the last one of all processes removes the WAL."""
        with suppress(apsw.Error):  # Whatever it could not tidy up, the next opening does.
            self._db.close()

    def together(self, works: Sequence[Callable[[CallFile], Any]]) -> list[Any]:
        """Do all works in one durable transaction; return what each returned, or its Conflict."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            outcomes = each(self, works)
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        return outcomes

    def has_entry(self) -> bool:
        return bool(self._db.execute(HAS_ENTRY).get)

    def append(self, position: int, entry: bytes) -> None:
        self._db.execute(APPEND, (position, entry))
        if not self._db.changes():
            raise Conflict(f"position {position} is taken, or the one before it is not")

    def read(self, start: int, limit: int) -> list[bytes]:
        return [entry for (entry,) in self._db.execute(READ, (start, limit))]

    def replace(self, start: int, entries: Sequence[bytes]) -> None:
        if self._db.execute(COUNT, (start, len(entries))).get != len(entries):
            raise Conflict(f"not every position from {start} on has an entry")
        self._db.executemany(REPLACE, enumerate(entries, start))

    def get_cell(self, name: str) -> Cell | None:
        row: Any = self._db.execute(GET_CELL, (name,)).fetchone()
        return Cell(row[0], str(row[1])) if row is not None else None

    def put_cell(self, name: str, value: bytes, version: str | None) -> str:
        if version is None:
            new = self._db.execute(CREATE_CELL, (name, value)).get
        else:
            new = self._db.execute(CHANGE_CELL, (name, value, version)).get
        if new is None:
            raise Conflict(f"cell {name} does not have version {version}")
        return str(new)

    def rewrite(self) -> None:
        """Write the file anew from its rows alone: pages keep stale bytes, even zeroed ones."""
        self._db.execute("VACUUM").fetchall()

    def empty_log(self) -> None:
        """Move the WAL into the file and cut it to nothing; raise Busy while a reader needs it."""
        if self._db.pragma("wal_checkpoint", "TRUNCATE")[0]:
            raise Busy("somebody still reads the call as it was before")
