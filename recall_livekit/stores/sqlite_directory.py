"""The directory of a `SqliteStore` as one of its threads sees it. Imported by those threads."""

from __future__ import annotations

import re
import resource
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from ..errors import Conflict, StoreError, StoreUnusable
from .base import Cell
from .jobs import Busy, each
from .keys import call_key
from .sqlite_errors import told
from .sqlite_file import (
    CallFile,
    create_file,
    open_file,
    refuse_affected_sqlite,
    sync_directory,
)

__all__ = ["AnyFile", "CallDirectory", "Keeper", "MissingFile", "Reader", "Writer"]

OPEN_FILES = min(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 16)
"""How many calls' files one thread keeps open (three descriptors each, and two threads); the one
unused for longest is closed."""
FILE_NAME = re.compile(r"[0-9a-f]{40}\.db")
LEFT_OVER_AFTER = 3600.0
"""Seconds after which a file that was never linked to its name is a crash's left-over."""


class MissingFile:
    """A call without a file: nothing is there, and only what creates can change that."""

    def __init__(self, path: Path, call: str, *, creates: bool) -> None:
        self._path = path
        self._call = call
        self._creates = creates

    def together(self, works: Sequence[Callable[[AnyFile], Any]]) -> list[Any]:
        if not self._creates:
            return each(self, works)
        outcomes = create_file(self._path, self._call, works)
        if outcomes is None:
            raise Busy("another process makes the call's file")
        return outcomes

    def append(self, position: int, entry: bytes) -> None:
        raise Conflict(f"nothing is at the position before {position}")

    def read(self, start: int, limit: int) -> list[bytes]:
        return []

    def replace(self, start: int, entries: Sequence[bytes]) -> None:
        if entries:
            raise Conflict(f"nothing is at position {start}")

    def get_cell(self, name: str) -> Cell | None:
        return None

    def put_cell(self, name: str, value: bytes, version: str | None) -> str:
        raise Conflict(f"there is no cell {name}")

    def rewrite(self) -> None:
        """Nothing to do."""

    def empty_log(self) -> None:
        """Nothing to do."""


AnyFile: TypeAlias = CallFile | MissingFile


class CallDirectory:
    """The calls' files, opened when needed, and at most `OPEN_FILES` of them kept open."""

    def __init__(self, directory: Path) -> None:
        """Make the directory if it is missing.

        Raises:
            StoreError: That cannot be done.
        """
        refuse_affected_sqlite(apsw.sqlite_lib_version())
        self._directory = directory
        self._open: OrderedDict[str, CallFile] = OrderedDict()
        with told(directory):
            if not directory.is_dir():
                directory.mkdir(parents=True, exist_ok=True)
                sync_directory(directory.parent)

    def sweep(self) -> None:
        """Remove what crashes left over. It looks at every call: nothing for a caller's path."""
        with told(self._directory):
            self._sweep()

    def remove_left_over(self, call: str) -> None:
        """Remove what a crash while this call's file was made left over, however young it is."""
        with told(self._directory):
            for path in self._directory.glob(f"{call_key(call)}.*.new"):
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        for path in self._directory.glob("*.new"):
            with suppress(FileNotFoundError):  # Whose it is has just linked it to its name.
                if path.stat().st_mtime < time.time() - LEFT_OVER_AFTER:
                    path.unlink()

    @contextmanager
    def file(self, call: str, *, creates: bool = False) -> Iterator[AnyFile]:
        """Give the call's file; one that failed is opened anew the next time.

        Raises:
            Busy: Another process has it locked.
            StoreError: It cannot be used.
        """
        try:
            with told(self._path(call)):
                yield self._get(call, creates)
        except StoreError:
            self._discard(call)
            raise

    def _path(self, call: str) -> Path:
        return self._directory / f"{call_key(call)}.db"

    def _get(self, call: str, creates: bool) -> AnyFile:
        if call in self._open:
            self._open.move_to_end(call)
            return self._open[call]
        path = self._path(call)
        if not path.exists():
            return MissingFile(path, call, creates=creates)
        return self._keep(call, open_file(path))

    def _keep(self, call: str, file: CallFile) -> CallFile:
        self._open[call] = file
        if file.call != call:
            raise StoreUnusable(f"{file.path} holds another call's records: it was renamed")
        if len(self._open) > OPEN_FILES:
            self._discard(next(iter(self._open)))
        return file

    def _discard(self, call: str) -> None:
        if file := self._open.pop(call, None):
            file.close()

    def close(self) -> None:
        """Close all files; they are opened anew when they are needed."""
        while self._open:
            self._open.popitem()[1].close()

    def names(self) -> list[str]:
        """Return the names of all calls' files."""
        with told(self._directory):
            found = [path.name for path in self._directory.iterdir()]
        return [name for name in found if FILE_NAME.fullmatch(name)]

    def calls_in(self, names: Sequence[str]) -> list[str | StoreError]:
        """Return the call of each file that has an entry, or why the file cannot be used."""
        found = (self._call_in(self._directory / name) for name in names)
        return [call for call in found if call is not None]

    def _call_in(self, path: Path) -> str | StoreError | None:
        try:
            with told(path):
                file = open_file(path)
                try:
                    return self._owner(file) if file.has_entry() else None
                finally:
                    file.close()
        except StoreError as error:
            return error

    def _owner(self, file: CallFile) -> str:
        if self._path(file.call) != file.path:
            raise StoreUnusable(f"{file.path} holds another call's records: it was renamed")
        return file.call


class _Servant:
    def __init__(self, directory: Path) -> None:
        self._directory = CallDirectory(directory)

    def close(self) -> None:
        self._directory.close()

    def before_fork(self) -> None:
        """SQLite keeps its locks in memory: a child that inherits them believes it has them."""
        self._directory.close()

    def after_fork_in_child(self) -> None:
        """Nothing is open."""


class Writer(_Servant):
    """Does all works of a call in one transaction."""

    def serve(
        self, key: str, works: Sequence[Callable[[AnyFile], Any]], creates: bool
    ) -> list[Any]:
        with self._directory.file(key, creates=creates) as file:
            return file.together(works)


class Reader(_Servant):
    """Does each work by itself, without a lock that a writer could wait for."""

    def serve(
        self, key: str, works: Sequence[Callable[[AnyFile], Any]], creates: bool
    ) -> list[Any]:
        with self._directory.file(key) as file:
            return each(file, works)


class Keeper(_Servant):
    """Does what takes long: whole files, or all of them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._directory.sweep()

    def serve(
        self, key: str, works: Sequence[Callable[[CallDirectory], Any]], creates: bool
    ) -> list[Any]:
        return each(self._directory, works)
