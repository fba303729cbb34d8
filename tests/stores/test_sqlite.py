"""`SqliteStore`: the suites, and what only files, threads, forks and full disks can do."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

import apsw
import pytest

from recall_livekit.errors import StoreUnavailable, StoreUnusable
from recall_livekit.stores import sqlite_directory
from recall_livekit.stores.base import Locks
from recall_livekit.stores.keys import call_key
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.stores.sqlite_file import refuse_affected_sqlite
from recall_livekit.testing.conformance import LockConformance, SharedStoreConformance

SEARCH = """
import pathlib, sys
files = [path for path in pathlib.Path(sys.argv[1]).rglob("*") if path.is_file()]
assert files
sys.exit(any(bytes.fromhex(sys.argv[2]) in path.read_bytes() for path in files))
"""
"""Run beside: reading a file here would drop this process's locks on it."""

_stalled: list[apsw.Connection] = []


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def file_of(directory: Path, call: str) -> Path:
    return directory / "calls" / f"{call_key(call)}.db"


def open_files() -> set[Path]:
    """Return the open descriptors of this process, but for the one that this opens."""
    return {path for path in Path("/dev/fd").iterdir() if path.exists()}


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*")}


def begin_write(directory: Path, call: str) -> None:
    """Leave a write transaction open, as a process does that is stopped inside a commit."""
    db = apsw.Connection(str(file_of(directory, call)), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute("BEGIN IMMEDIATE; INSERT INTO entries VALUES (1, x'00')")
    _stalled.append(db)


def run(script: str, *args: object) -> str:
    """Run a script in a process of its own and return what it printed."""
    command = [sys.executable, "-c", script, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestSqliteStore(SharedStoreConformance, LockConformance):
    timeout = 1.0

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "made" / "when needed"

    def opener(self) -> Callable[[], SqliteStore]:
        return partial(SqliteStore, self.directory, timeout=self.timeout)

    def stalling(self, call: str) -> Callable[[], None]:
        return partial(begin_write, self.directory, call)

    def contains(self, content: bytes) -> bool:
        command = [sys.executable, "-c", SEARCH, str(self.directory), content.hex()]
        code = subprocess.run(command, timeout=60, check=False).returncode
        assert code in (0, 1)
        return code == 1


def test_it_is_a_locks(tmp_path: Path) -> None:
    assert isinstance(SqliteStore(tmp_path), Locks)


def test_neither_importing_nor_making_it_touches_sqlite_or_the_disk(tmp_path: Path) -> None:
    run(
        "import sys; from recall_livekit.stores.sqlite import SqliteStore;"
        "SqliteStore(sys.argv[1]); assert 'apsw' not in sys.modules",
        tmp_path / "new",
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.anyio
async def test_no_file_name_tells_the_call_id(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.append("+491701234567", 0, b"entry")
    names = names_in(tmp_path)
    await store.aclose()
    assert names
    assert not [name for name in names if "491701234567" in name]


@pytest.mark.anyio
async def test_closing_leaves_one_file_a_call_and_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    store = SqliteStore(tmp_path)
    await store.append("call", 0, b"entry")
    await store.read("call", 0, 1)
    await store.scrub("call")
    await store.hold("lock")
    assert threading.active_count() == before + 4
    await store.aclose()
    assert threading.active_count() == before
    assert names_in(tmp_path) == {"calls", "locks", file_of(tmp_path, "call").name}


@pytest.mark.anyio
async def test_open_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_directory, "OPEN_FILES", 4)
    before = len(open_files())
    store = SqliteStore(tmp_path)
    for position in range(2):
        for number in range(20):
            await store.append(f"call {number}", position, b"entry")
            await store.read(f"call {number}", 0, 10)
    assert len(open_files()) - before <= 2 * 4 * 3
    await store.aclose()


def _write(path: Path, *statements: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement).fetchall()
    db.close()


@pytest.mark.anyio
@pytest.mark.parametrize("content", [b"", b"not a database " * 1000, b"SQLite format 3\0" * 500])
async def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    path = file_of(tmp_path, "call")
    path.parent.mkdir()
    path.write_bytes(content)
    await _is_refused(tmp_path, "move it away")
    assert path.read_bytes() == content


@pytest.mark.anyio
async def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    _write(file_of(tmp_path, "call"), "CREATE TABLE entries (position, entry)")
    await _is_refused(tmp_path, "move it away")


@pytest.mark.anyio
async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    await _write_calls(tmp_path, "call")
    _write(file_of(tmp_path, "call"), "PRAGMA user_version = 99")
    await _is_refused(tmp_path, "upgrade")


@pytest.mark.anyio
async def test_a_file_of_another_call_is_refused(tmp_path: Path) -> None:
    await _write_calls(tmp_path, "other")
    file_of(tmp_path, "other").rename(file_of(tmp_path, "call"))
    await _is_refused(tmp_path, "renamed")


@pytest.mark.anyio
async def test_a_damaged_file_is_refused_and_the_others_are_listed(tmp_path: Path) -> None:
    await _write_calls(tmp_path, "call", "other")
    with file_of(tmp_path, "call").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)
    store = SqliteStore(tmp_path)
    listed = store.calls()
    assert await anext(listed) == "other"
    with pytest.raises(StoreUnusable, match="damaged"):
        await anext(listed)
    await store.append("other", 1, b"entry")
    await store.aclose()
    await _is_refused(tmp_path, "damaged")


async def _write_calls(directory: Path, *calls: str) -> None:
    store = SqliteStore(directory)
    for call in calls:
        await store.append(call, 0, b"entry")
    await store.aclose()


async def _is_refused(directory: Path, what_to_do: str) -> None:
    store = SqliteStore(directory)
    with pytest.raises(StoreUnusable, match=what_to_do):
        await store.append("call", 0, b"entry")
    with pytest.raises(StoreUnusable, match=what_to_do):
        await store.read("call", 0, 1)
    await store.aclose()


@pytest.mark.anyio
async def test_a_write_that_goes_wrong_leaves_no_transaction_open(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await _write_calls(tmp_path, "call")
    with pytest.raises(TypeError):
        await store.append("call", 1, cast("bytes", object()))
    await store.append("call", 1, b"entry")
    assert len(await store.read("call", 0, 9)) == 2
    await store.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("below", [".", "below"])
async def test_a_directory_that_is_a_file_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = SqliteStore(tmp_path / "file" / below)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="check the directory"):
            await store.append("call", 0, b"entry")
        with pytest.raises(StoreUnusable, match="check the directory"):
            await store.hold("lock")
    await store.aclose()


@pytest.mark.anyio
async def test_a_store_whose_directory_comes_back_works_again(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    store = SqliteStore(tmp_path / "data")
    with pytest.raises(StoreUnusable):
        await store.append("call", 0, b"entry")
    (tmp_path / "data").unlink()
    await store.append("call", 0, b"entry")
    await store.aclose()


FULL_DISK = """
import asyncio, resource, sys
from recall_livekit.errors import StoreUnavailable
from recall_livekit.stores.sqlite import SqliteStore

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = SqliteStore(sys.argv[1])
    await store.append("call", 0, b"before")
    limit(200_000)
    written = 1
    try:
        while True:
            await store.append("call", written, b"x" * 20_000)
            written += 1
    except StoreUnavailable as error:
        print(error)
    assert 1 < written < 12
    assert len(await store.read("call", 0, 100)) == written
    limit(resource.RLIM_INFINITY)
    await store.append("call", written, b"after")
    limit(100)
    try:
        await store.append("new", 0, b"entry")
        raise AssertionError("written")
    except StoreUnavailable as error:
        print(error)
    limit(resource.RLIM_INFINITY)
    await store.append("new", 0, b"entry")
    assert sorted([call async for call in store.calls()]) == ["call", "new"]
    await store.aclose()

asyncio.run(main())
"""


def test_a_full_disk_is_unavailable_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    assert run(FULL_DISK, tmp_path).count("\n") == 2
    assert not list(tmp_path.rglob("*.new"))


FORK = """
import asyncio, os, pathlib, sys
from recall_livekit.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
to_child, to_parent = os.pipe(), os.pipe()

async def parent_first():
    await store.append("call", 0, b"parent")
    await store.hold("lock")
    assert len(await store.read("call", 0, 9)) == 1

async def child():
    assert await store.held("lock")
    await store.append("call", 1, b"child")
    await store.append("child's", 0, b"child")
    assert list(await store.read("call", 0, 9)) == [b"parent", b"child"]
    # SQLite's locks are the system's, not only in memory, where inherited ones would be:
    if (locks := pathlib.Path("/proc/locks")).exists():
        assert f" {os.getpid()} " in locks.read_text()
    os.write(to_parent[1], b"1")
    os.read(to_child[0], 1)
    assert await store.held("lock")
    await store.let_go("lock")
    assert await store.held("lock"), "it is the parent's"
    await store.append("call", 3, b"child")
    os.write(to_parent[1], b"2")
    os.read(to_child[0], 1)
    await store.wait_free("lock")
    await store.aclose()

async def parent_then():
    assert list(await store.read("call", 0, 9)) == [b"parent", b"child"]
    await store.append("call", 2, b"parent")
    os.write(to_child[1], b"1")
    os.read(to_parent[0], 1)
    assert len(await store.read("call", 0, 9)) == 4
    await store.let_go("lock")
    os.write(to_child[1], b"2")

asyncio.run(parent_first())
pid = os.fork()
if pid == 0:
    asyncio.run(asyncio.wait_for(child(), 20))
    sys.exit()
os.read(to_parent[0], 1)
asyncio.run(asyncio.wait_for(parent_then(), 20))
assert os.waitpid(pid, 0)[1] == 0
asyncio.run(store.aclose())
print("done")
"""


def test_the_child_of_a_fork_has_its_own_threads_and_the_parent_its_locks(tmp_path: Path) -> None:
    assert run(FORK, tmp_path) == "done\n"


ORPHAN = """
import asyncio, os, sys
from recall_livekit.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])

async def wait():
    await asyncio.wait_for(store.wait_free("lock"), 20)

asyncio.run(store.hold("lock"))
reading, writing = os.pipe()
if os.fork() == 0:
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        asyncio.run(wait())
        print("free", flush=True)
    os._exit(0)
os.wait()
os._exit(0)
"""


def test_a_lock_does_not_outlive_its_holder_in_a_forked_child(tmp_path: Path) -> None:
    assert run(ORPHAN, tmp_path) == "free\n"


@pytest.mark.anyio
async def test_let_go_frees_a_lock_whose_descriptor_was_inherited(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.hold("lock")
    path = tmp_path / "locks" / "lock.lock"
    (inherited,) = [os.dup(int(fd.name)) for fd in open_files() if path.samefile(fd)]
    waiter = os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(waiter, fcntl.LOCK_SH | fcntl.LOCK_NB)
    await store.let_go("lock")
    fcntl.flock(waiter, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(inherited)
    os.close(waiter)
    await store.aclose()


@pytest.mark.parametrize(
    "version", ["3.7.0", "3.40.1", "3.44.5", "3.45.0", "3.49.2", "3.50.6", "3.51.0", "3.51.2"]
)
def test_a_sqlite_that_can_lose_commits_is_refused(version: str) -> None:
    with pytest.raises(StoreUnusable, match="upgrade apsw"):
        refuse_affected_sqlite(version)


@pytest.mark.parametrize("version", ["3.44.6", "3.50.7", "3.51.3", "3.52.0", "3.54.1", "4.0"])
def test_a_sqlite_with_the_repair_is_taken(version: str) -> None:
    refuse_affected_sqlite(version)


@pytest.mark.anyio
async def test_what_crashes_left_over_is_swept_away(tmp_path: Path) -> None:
    for folder, names in (("calls", ("a.1-0.new", "b.1-0.new")), ("locks", ("a.lock", "b.lock"))):
        (tmp_path / folder).mkdir()
        for name, age in zip(names, (10**6, 0), strict=True):
            path = tmp_path / folder / name
            path.touch()
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    store = SqliteStore(tmp_path)
    await store.append("call", 0, b"entry")
    await store.hold("c")
    await store.let_go("c")
    assert [call async for call in store.calls()] == ["call"]
    await store.aclose()
    left = names_in(tmp_path) - {"calls", "locks", file_of(tmp_path, "call").name}
    assert left == {"b.1-0.new", "b.lock"}


@pytest.mark.anyio
async def test_scrub_is_unavailable_while_a_reader_keeps_the_old_bytes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, timeout=0.3)
    await store.append("call", 0, b"entry")
    reader = apsw.Connection(str(file_of(tmp_path, "call")))
    reader.execute("BEGIN; SELECT * FROM entries").fetchall()
    await store.replace("call", 0, [b"stub"])
    with pytest.raises(StoreUnavailable, match="still reads"):
        await store.scrub("call")
    reader.execute("COMMIT")
    await store.scrub("call")
    reader.close()
    await store.aclose()
