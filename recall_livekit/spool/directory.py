"""Spool files on a disk of this machine: owned by locks that the system frees with the process."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..errors import Conflict, OutboxFull, StoreUnusable
from ..stores.jobs import each
from ..stores.system_errors import system_told
from ..stores.threads import StoreThread
from .disk import ASIDE, SUFFIX, Listed

__all__ = ["FileDisk"]

logger = logging.getLogger("recall_livekit")

T = TypeVar("T")
PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
COUNTED_EVERY = 1.0
"""Seconds that the directory's size is believed, other processes' files included."""


class FileDisk:
    """The `Disk` of a directory, which is made (for its owner alone) when the first file is.

    One thread does all of it, so that no disk ever holds up an event loop. Every request is
    answered within `timeout` seconds. In the child of a fork it works, with a thread of its own;
    what was held stays the parent's.
    """

    def __init__(self, directory: Path, *, max_bytes: int, timeout: float = 5.0) -> None:
        """Files together grow to `max_bytes`, and no further."""
        self._directory = directory
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._mine = self._hire()

    def _hire(self) -> tuple[int, StoreThread[_Directory]]:
        def hire() -> _Directory:
            return _Directory(self._directory, self._max_bytes)

        return os.getpid(), StoreThread("recall-spool", hire, self._timeout)

    def file(self, name: str) -> _OnDisk:
        """See `Disk`."""
        return _OnDisk(self, name)

    async def listed(self) -> Sequence[Listed]:
        """See `Disk`."""
        return await self.ask("", lambda directory: directory.listed())

    async def ask(self, name: str, work: Callable[[_Directory], T]) -> T:
        """Have the thread do `work`; what concerns one name is done in its order."""
        if self._mine[0] != os.getpid():
            self._mine = self._hire()
        return await self._mine[1].ask(name, work)

    async def aclose(self) -> None:
        """See `Disk`."""
        if self._mine[0] == os.getpid():
            await self._mine[1].aclose()


class _OnDisk:
    """A `SpoolFile`: a handle whose work the thread does."""

    def __init__(self, disk: FileDisk, name: str) -> None:
        self.name = name
        self._disk = disk

    async def create(self, data: bytes) -> None:
        await self._ask(lambda directory: directory.create(self, data))

    async def take(self, read: Callable[[bytes], T]) -> T | None:
        return await self._ask(lambda directory: directory.take(self, read))

    async def append(self, at: int, data: bytes) -> None:
        await self._ask(lambda directory: directory.append(self, at, data))

    async def remove(self) -> None:
        await self._ask(lambda directory: directory.remove(self))

    async def set_aside(self) -> None:
        await self._ask(lambda directory: directory.set_aside(self))

    async def let_go(self) -> None:
        await self._ask(lambda directory: directory.let_go(self))

    async def _ask(self, work: Callable[[_Directory], T]) -> T:
        return await self._disk.ask(self.name, work)


class _Directory:
    """The files, as the thread sees them. What is held has an open, locked descriptor."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._held: dict[str, tuple[_OnDisk, int]] = {}
        self._bytes = 0
        self._counted_at = -COUNTED_EVERY
        self._swept = False

    def serve(
        self, key: str, works: Sequence[Callable[[_Directory], Any]], creates: bool
    ) -> list[Any]:
        with system_told(self._path):
            return each(self, works)

    # --- writing --------------------------------------------------------------------------------

    def create(self, file: _OnDisk, data: bytes) -> None:
        """Nobody ever sees it without its lock, or half written."""
        self._make()
        mine = self._mine(file)
        more = len(data) - (0 if mine is None else os.fstat(mine).st_size)
        self._refuse_if_full(more)
        beside = self._path / f".{file.name}.{os.getpid()}"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(beside, flags, PRIVATE_FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(descriptor, 0, data)
            os.fsync(descriptor)
            beside.rename(self._path / file.name)
            self._sync()
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        self.let_go(file)
        self._held[file.name] = (file, descriptor)
        self._bytes += more

    def append(self, file: _OnDisk, at: int, data: bytes) -> None:
        descriptor = self._mine(file)
        if descriptor is None or not self._is_there(file.name, descriptor):
            raise Conflict(f"{file.name} is not there any more")
        self._refuse_if_full(len(data))
        os.ftruncate(descriptor, at)
        _write(descriptor, at, data)
        os.fdatasync(descriptor)
        self._bytes += len(data)

    def remove(self, file: _OnDisk) -> None:
        if self._mine(file) is not None:
            (self._path / file.name).unlink(missing_ok=True)
            self._sync()
            self._counted_at = -COUNTED_EVERY
            self.let_go(file)

    def set_aside(self, file: _OnDisk) -> None:
        if self._mine(file) is not None and not file.name.endswith(ASIDE):
            (self._path / file.name).rename(self._path / (file.name + ASIDE))
            self._sync()
            self.let_go(file)

    # --- holding --------------------------------------------------------------------------------

    def take(self, file: _OnDisk, read: Callable[[bytes], T]) -> T | None:
        if file.name in self._held or (descriptor := self._open(file.name)) is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = not self._is_there(file.name, descriptor)
        except BlockingIOError:
            gone = True
        except BaseException:
            os.close(descriptor)
            raise
        if gone:
            os.close(descriptor)
            return None
        self._held[file.name] = (file, descriptor)
        return read(_read(descriptor))

    def let_go(self, file: _OnDisk) -> None:
        if (descriptor := self._mine(file)) is not None:
            del self._held[file.name]
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone leaves it to a forked child
            os.close(descriptor)

    def _mine(self, file: _OnDisk) -> int | None:
        holder, descriptor = self._held.get(file.name, (None, -1))
        return descriptor if holder is file else None

    def _open(self, name: str) -> int | None:
        """Return a descriptor; None if it is gone, or nobody's who may be believed."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self._path / name, flags)
        except FileNotFoundError:
            return None
        found = os.fstat(descriptor)
        if found.st_uid == os.geteuid() and stat.S_ISREG(found.st_mode):
            return descriptor
        os.close(descriptor)
        raise StoreUnusable(f"{self._path / name} is not a file of this user: not read")

    def _is_there(self, name: str, descriptor: int) -> bool:
        """Whether the name still means the file that the descriptor does."""
        try:
            named = (self._path / name).stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

    # --- the directory --------------------------------------------------------------------------

    def listed(self) -> list[Listed]:
        found = sorted(self._scan(), key=lambda one: one.written_at)
        if not self._swept:
            self._swept = True
            self._sweep()
        return found

    def _scan(self) -> list[Listed]:
        found = []
        with suppress(FileNotFoundError):
            for path in self._path.iterdir():
                if path.name.endswith((SUFFIX, SUFFIX + ASIDE)) and not path.name.startswith("."):
                    with suppress(FileNotFoundError):  # drained meanwhile
                        known = path.stat(follow_symlinks=False)
                        found.append(Listed(path.name, known.st_size, known.st_mtime))
        return found

    def _sweep(self) -> None:
        """Delete what a process left that died while it made a file: nothing of it was told."""
        with suppress(OSError):
            for path in self._path.glob(f".*{SUFFIX}*"):
                with path.open("rb") as left, suppress(BlockingIOError):
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink(missing_ok=True)

    def _make(self) -> None:
        if not self._path.is_dir():
            self._path.mkdir(PRIVATE_DIRECTORY, parents=True, exist_ok=True)
            logger.info("records that cannot be stored are spooled in %s", self._path)

    def _refuse_if_full(self, more: int) -> None:
        if time.monotonic() - self._counted_at >= COUNTED_EVERY:
            self._bytes = sum(one.size for one in self._scan())
            self._counted_at = time.monotonic()
        if self._bytes + more > self._max_bytes:
            raise OutboxFull(
                f"{self._path} has {self._bytes} bytes of records, {self._max_bytes} are allowed "
                "(spool_bytes): let them drain, or look at those set aside"
            )

    def _sync(self) -> None:
        """Make a new name durable."""
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # --- the thread's ---------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of all."""
        for file, _ in list(self._held.values()):
            with suppress(OSError):  # the process's end frees it at the latest
                self.let_go(file)

    def before_fork(self) -> None:
        """The parent keeps its files."""

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors, or the locks would outlive the parent."""
        for _, descriptor in self._held.values():
            os.close(descriptor)


def _write(descriptor: int, at: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _read(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()
