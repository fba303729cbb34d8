"""`SqliteStore`: a directory of SQLite files, one a call, shared by any number of processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..call_ids import check_call_id
from ..errors import Closed, StoreError, StoreUnusable
from .base import Cell
from .locks import FileLocks
from .threads import Servant, StoreThread

if TYPE_CHECKING:
    from .sqlite_directory import AnyFile, CallDirectory

__all__ = ["SqliteStore"]

LISTED_AT_ONCE = 16
"""How many files are looked into before the next call's id is yielded."""


@dataclass(frozen=True, slots=True)
class _Threads:
    """What belongs to one process; a forked child gets its own."""

    process: int
    writer: StoreThread[AnyFile]
    reader: StoreThread[AnyFile]
    keeper: StoreThread[CallDirectory]
    locks: FileLocks


def _calls_in(names: Sequence[str], directory: CallDirectory) -> Sequence[str | StoreError]:
    return directory.calls_in(names)


class _Scrub:
    """Leaves no byte of what was replaced; when it was Busy halfway it goes on from there."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._rewritten = False

    def __call__(self, directory: CallDirectory) -> None:
        directory.remove_left_over(self._call)
        with directory.file(self._call) as file:
            if not self._rewritten:
                file.rewrite()
                self._rewritten = True
            file.empty_log()


class SqliteStore:
    """Keeps the contract of `Store` and `Locks` in `directory`, which is made if missing.

    Every acknowledged write is on the disk (WAL, synchronous=FULL). Each call has its own file,
    named by a hash, so that a process that is frozen inside a commit holds up its own call and no
    other. Reads never wait for commits. Threads and files are opened at the first use; the
    directory must be on a local disk. Every method answers or raises StoreUnavailable within
    `timeout` seconds, also if the disk hangs.

    In the child of a fork the store works, with threads and connections of its own; locks that
    were held stay the parent's.
    """

    def __init__(self, directory: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._directory = Path(directory).absolute()
        self._timeout = timeout
        self._closed = False
        self._threads = self._hire()

    def _hire(self) -> _Threads:
        calls = self._directory / "calls"

        def writer() -> Servant[AnyFile]:
            from .sqlite_directory import Writer

            return Writer(calls)

        def reader() -> Servant[AnyFile]:
            from .sqlite_directory import Reader

            return Reader(calls)

        def keeper() -> Servant[CallDirectory]:
            from .sqlite_directory import Keeper

            return Keeper(calls)

        return _Threads(
            os.getpid(),
            StoreThread("recall-writer", writer, self._timeout),
            StoreThread("recall-reader", reader, self._timeout),
            StoreThread("recall-keeper", keeper, self._timeout),
            FileLocks(self._directory / "locks", timeout=self._timeout),
        )

    def _own(self) -> _Threads:
        """Return this process's threads: after a fork they are not the inherited ones."""
        if self._closed:
            raise Closed("the store was closed")
        threads = self._threads
        if threads.process != os.getpid():
            if any(t.forked_unclean for t in (threads.writer, threads.reader, threads.keeper)):
                raise StoreUnusable("the process forked while the disk hung: open a new process")
            self._threads = threads = self._hire()
        return threads

    async def append(self, call: str, position: int, entry: bytes) -> None:
        check_call_id(call)
        await self._own().writer.ask(
            call, lambda file: file.append(position, entry), creates=position == 0
        )

    async def read(self, call: str, start: int, limit: int) -> Sequence[bytes]:
        check_call_id(call)
        return await self._own().reader.ask(call, lambda file: file.read(start, limit))

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        check_call_id(call)
        kept = list(entries)
        await self._own().writer.ask(call, lambda file: file.replace(start, kept))

    async def get_cell(self, call: str, name: str) -> Cell | None:
        check_call_id(call)
        return await self._own().reader.ask(call, lambda file: file.get_cell(name))

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        check_call_id(call)
        return await self._own().writer.ask(
            call, lambda file: file.put_cell(name, value, version), creates=version is None
        )

    async def scrub(self, call: str) -> None:
        """As in the contract; StoreUnavailable if a reader of the old bytes stays too long."""
        check_call_id(call)
        await self._own().keeper.ask(call, _Scrub(call))

    async def calls(self) -> AsyncIterator[str]:
        """As in the contract; a file that cannot be used is raised after all others were listed.

        Raises:
            StoreError: The first file that cannot be used, or the directory.
        """
        failed: StoreError | None = None
        names = await self._own().keeper.ask("", lambda directory: directory.names())
        for start in range(0, len(names), LISTED_AT_ONCE):
            some = names[start : start + LISTED_AT_ONCE]
            for found in await self._own().keeper.ask("", partial(_calls_in, some)):
                if isinstance(found, str):
                    yield found
                else:
                    failed = failed or found
        if failed is not None:
            raise failed

    async def aclose(self) -> None:
        """Finish what was accepted and give back locks, threads and files."""
        self._closed = True
        mine = self._threads
        if mine.process == os.getpid():
            # The writer's connection is the last, so that its close removes the WAL.
            try:
                others = (mine.reader, mine.keeper, mine.locks)
                await asyncio.gather(*(part.aclose() for part in others))
            finally:
                await mine.writer.aclose()

    async def hold(self, name: str) -> None:
        await self._own().locks.hold(name)

    async def let_go(self, name: str) -> None:
        await self._own().locks.let_go(name)

    async def held(self, name: str) -> bool:
        return await self._own().locks.held(name)

    async def wait_free(self, name: str) -> None:
        await self._own().locks.wait_free(name)

    async def remove(self, name: str) -> None:
        await self._own().locks.remove(name)

    async def wait_removed(self, name: str) -> None:
        await self._own().locks.wait_removed(name)
