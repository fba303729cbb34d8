"""Locks on files: the operating system's own word on which holder lives.

A lock is a file that its holder keeps locked with `flock`, which the system gives back the moment
the holder's process is gone, however it went. One thread does all of it and looks again every few
milliseconds for those who wait: nothing here blocks an event loop, and a wait can be cancelled.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from .jobs import Busy, each
from .system_errors import system_told
from .threads import StoreThread

__all__ = ["FileLocks"]

FREE_EVERY = 0.01
REMOVED_EVERY = 0.025
"""Seconds between two looks."""
LEFT_OVER_AFTER = 24 * 3600.0
"""Seconds after which the file of a holder that died is swept away; free it is all along."""
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class FileLocks:
    """The `Locks` of a directory, which is made if missing. See the contract in `base`."""

    def __init__(self, directory: Path, *, timeout: float = 5.0) -> None:
        self._thread = StoreThread("recall-locks", lambda: _LockFiles(directory), timeout)

    async def hold(self, name: str) -> None:
        """Take the lock; again by the same holder changes nothing.

        If this was cancelled or unavailable it may have been taken all the same: `let_go`.
        """
        await self._thread.ask(_checked(name), lambda files: files.hold(name))

    async def let_go(self, name: str) -> None:
        """Give the lock back; one that is not held here is left alone."""
        await self._thread.ask(_checked(name), lambda files: files.let_go(name))

    async def held(self, name: str) -> bool:
        """Whether a living process, this one included, has the lock."""
        return await self._thread.ask(_checked(name), lambda files: files.held(name))

    async def wait_free(self, name: str) -> None:
        """Return within some 10 ms of nobody living having the lock."""
        key = f"free/{_checked(name)}"
        await self._thread.ask(key, lambda files: files.wait_free(name), endless=True)

    async def remove(self, name: str) -> None:
        """Remove the lock's file, whoever holds it."""
        await self._thread.ask(_checked(name), lambda files: files.remove(name))

    async def wait_removed(self, name: str) -> None:
        """Return within some 50 ms of the lock not being here any more: removed, or let go."""
        key = f"removed/{_checked(name)}"
        await self._thread.ask(key, lambda files: files.wait_removed(name), endless=True)

    async def aclose(self) -> None:
        """Give all locks back; whoever waits gets Closed."""
        await self._thread.aclose()


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidInput(f"a lock's name is 1 to 64 of A-Z a-z 0-9 _ -, not {name!r}")
    return name


class _LockFiles:
    """The files, as the thread sees them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}
        with system_told(directory):
            directory.mkdir(parents=True, exist_ok=True)
        self._swept = False

    def serve(
        self, key: str, works: Sequence[Callable[[_LockFiles], Any]], creates: bool
    ) -> list[Any]:
        with system_told(self._directory):
            return each(self, works)

    def hold(self, name: str) -> None:
        if name in self._held:
            return
        beside = self._directory / f".{name}.{os.getpid()}"
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            beside.rename(self._path(name))  # Nobody ever sees it without its lock.
        except BaseException:
            os.close(lock)
            raise
        self._held[name] = lock

    def let_go(self, name: str) -> None:
        if not self._swept:  # Here nobody waits any more; it looks at every lock there is.
            self._swept = True
            self._sweep()
        if (lock := self._held.pop(name, None)) is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # Closing alone leaves it to a forked child.
            os.close(lock)
            self._path(name).unlink(missing_ok=True)

    def held(self, name: str) -> bool:
        return not self._is_free(self._path(name))

    def wait_free(self, name: str) -> None:
        if self.held(name):
            raise Busy("a living process has the lock", FREE_EVERY)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def wait_removed(self, name: str) -> None:
        if name in self._held and self._path(name).exists():
            raise Busy("the lock is there", REMOVED_EVERY)

    def close(self) -> None:
        for name in list(self._held):
            with suppress(OSError):  # The process's end gives it back at the latest.
                self.let_go(name)

    def before_fork(self) -> None:
        """The parent keeps its locks."""

    def after_fork_in_child(self) -> None:
        """Close the inherited descriptors, or the locks would outlive the parent."""
        for lock in self._held.values():
            os.close(lock)

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.lock"

    def _is_free(self, path: Path) -> bool:
        """Try a shared lock: two who look at once do not take each other for the holder."""
        try:
            look = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(look, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(look)
        return True

    def _sweep(self) -> None:
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # Its holder has just let it go.
                old = path.stat().st_mtime < time.time() - LEFT_OVER_AFTER
                if old and self._is_free(path):
                    path.unlink()
