"""Where a worker dies: at the n-th boundary of a store request, or of a write to the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recall_livekit.stores.sqlite import SqliteStore

__all__ = ["Death", "DyingStore", "watch_disk"]

T = TypeVar("T")
NEVER = 1 << 60
SYSTEM = apsw.vfs_names()[0]


class Death:
    """Counts the boundaries that are passed, and strikes at one of them."""

    def __init__(self, at: int = NEVER, number: int = signal.SIGKILL) -> None:
        self.at = at
        self.passed = 0
        self.names: list[str] = []
        self._number = number

    def pass_by(self, name: str) -> None:
        self.passed += 1
        self.names.append(name)
        if self.passed == self.at:
            os.kill(os.getpid(), self._number)


class DyingStore(SqliteStore):
    """Passes a boundary before each request that changes something, and before its answer is
    used."""

    def __init__(self, directory: Path, death: Death) -> None:
        super().__init__(directory)
        self._death = death

    async def _between(self, name: str, request: Awaitable[T]) -> T:
        self._death.pass_by(f"before {name}")
        answer = await request
        self._death.pass_by(f"after {name}")
        return answer

    async def append(self, call: str, position: int, entry: bytes) -> None:
        name = f"append {position}"
        await self._between(name, super().append(call, position, entry))

    async def replace(self, call: str, start: int, entries: Sequence[bytes]) -> None:
        await self._between(f"replace {start}", super().replace(call, start, entries))

    async def put_cell(self, call: str, name: str, value: bytes, version: str | None) -> str:
        return await self._between(f"put {name}", super().put_cell(call, name, value, version))

    async def scrub(self, call: str) -> None:
        await self._between("scrub", super().scrub(call))

    async def hold(self, name: str) -> None:
        await self._between("hold", super().hold(name))

    async def let_go(self, name: str) -> None:
        await self._between("let go", super().let_go(name))

    async def remove(self, name: str) -> None:
        await self._between("remove", super().remove(name))


class _File(apsw.VFSFile):
    """Passes a boundary before, in the middle of, and after each write."""

    death: Death

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        half = len(data) // 2
        self.death.pass_by("before write")
        super().xWrite(data[:half], offset)
        self.death.pass_by("half written")
        super().xWrite(data[half:], offset + half)
        self.death.pass_by("after write")

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self.death.pass_by("after sync")

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self.death.pass_by("before truncate")
        super().xTruncate(size)
        self.death.pass_by("after truncate")


class _Disk(apsw.VFS):
    def __init__(self, death: Death) -> None:
        self._kind = type("File", (_File,), {"death": death})
        super().__init__("dying", SYSTEM, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        file: apsw.VFSFile = self._kind(SYSTEM, name, flags)
        return file


_kept: list[apsw.VFS] = []


def watch_disk(death: Death) -> None:
    """Pass a boundary at every write, sync, truncation and link of this process from now on."""
    _kept.append(_Disk(death))
    vars(os)["link"] = _around("link", os.link, death)
    vars(os)["fsync"] = _around("fsync", os.fsync, death)


def _around(name: str, real: Callable[..., None], death: Death) -> Callable[..., None]:
    def passing(*arguments: Any) -> None:
        death.pass_by(f"before {name}")
        real(*arguments)
        death.pass_by(f"after {name}")

    return passing
