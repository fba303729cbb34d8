"""What ``doctor`` checks of the directory of an embedded store. It leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .findings import Finding, fail, ok, warn

__all__ = ["directory", "filesystem_of"]

LITTLE = 1024**3
NONE_LEFT = 100 * 1024**2
"""Bytes free on the disk: below them a warning, a failure."""
NETWORK = (
    "9p", "afs", "afpfs", "beegfs", "ceph", "cifs", "davfs", "fuse.glusterfs", "fuse.s3fs",
    "fuse.sshfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb2", "smb3", "smbfs",
    "virtiofs", "webdav",
)  # fmt: skip
GONE_AT_RESTART = ("overlay", "ramfs", "tmpfs")
LOCAL = "put the records on a local disk, or let a Recall server have them"

# Another process: POSIX locks, which SQLite takes, are one for a whole process.
_TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(0)
sys.exit(1)
"""


def directory(path: Path) -> Iterator[Finding]:
    """Check where the records are, or will be."""
    there = path if path.is_dir() else _nearest(path)
    if path.exists() and not path.is_dir():
        yield fail("directory", f"{path} is a file", "give another directory")
        return
    yield _told_of(path, there)
    yield _disk(there)
    yield _space(there)
    if not os.access(there, os.W_OK | os.X_OK):
        yield fail("writing", f"{there} cannot be written", f"chown or chmod {there}")
        return
    yield from _tried(there)


def _told_of(path: Path, there: Path) -> Finding:
    if path != there:
        return ok("directory", f"{path} is not there yet: the first worker makes it")
    calls = path / "calls"
    count = sum(1 for one in calls.glob("*.db")) if calls.is_dir() else 0
    files = f"{count} file{'' if count == 1 else 's'}"  # a standby has one of its own
    return ok("directory", f"{path}, {files} of calls and their standbys")


def _nearest(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _disk(there: Path) -> Finding:
    kind = filesystem_of(there)
    if kind is None:
        return warn("disk", "of an unknown kind", f"make sure that it is local: {LOCAL}")
    if kind in NETWORK:
        says = f"{kind}: a network file system loses locks, and with them calls"
        return fail("disk", says, LOCAL)
    if kind in GONE_AT_RESTART:
        says = f"{kind}: it may be gone when the machine or container starts again"
        return warn("disk", says, "mount a volume there")
    return ok("disk", f"{kind}, local")


def filesystem_of(path: Path, mounts: str = "/proc/self/mountinfo") -> str | None:
    """Return the kind of file system that the path is on; None where that cannot be known."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, kind = "", None
    for line in lines:
        mount, _, rest = line.partition(" - ")
        point = _unescaped(mount.split(" ")[4])
        if path.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _unescaped(point: str) -> str:
    """Return the path as it is: the kernel writes blanks as octal."""
    return point.encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")


def _space(there: Path) -> Finding:
    free = shutil.disk_usage(there).free
    says = f"{free / 1024**3:.1f} GB free" if free >= 1024**3 else f"{free // 1024**2} MB free"
    if free < NONE_LEFT:
        return fail("space", says, "make room: what cannot be written waits in the workers")
    if free < LITTLE:
        return warn("space", says, "make room, or `recall-livekit prune` old calls")
    return ok("space", says)


def _tried(there: Path) -> Iterator[Finding]:
    """Do what the store does."""
    try:
        with tempfile.TemporaryDirectory(prefix=".recall-doctor-", dir=there) as name:
            tried = Path(name)
            yield _synced(tried / "written")
            yield _locked(tried / "locked")
            yield _linked(tried / "linked", tried / "again")
    except OSError as error:
        yield fail("writing", f"{there}: {error.strerror or error}", f"check {there} and its disk")


def _synced(path: Path) -> Finding:
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 4096)
        os.fsync(file.fileno())
    return ok("writing", "a file can be written and synced")


def _locked(path: Path) -> Finding:
    """Try both kinds of locks: `flock` tells that a holder lives, SQLite takes POSIX ones."""
    path.write_bytes(b"x")
    try:
        flock, posix = _flock_works(path), _posix_works(path)
    except OSError as error:
        return fail("locks", f"refused here: {error.strerror or error}", LOCAL)
    if not (flock and posix):
        which = "flock" if not flock else "POSIX"
        return fail("locks", f"{which} locks are given to two at once here", LOCAL)
    return ok("locks", "a lock is one process's")


def _flock_works(path: Path) -> bool:
    with path.open("rb") as held, path.open("rb") as other:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _posix_works(path: Path) -> bool:
    with path.open("r+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        command = [sys.executable, "-S", "-E", "-c", _TRY_LOCK, str(path)]
        return subprocess.run(command, timeout=10, check=False).returncode == 0  # noqa: S603


def _linked(path: Path, again: Path) -> Finding:
    path.write_bytes(b"x")
    try:
        os.link(path, again)
    except OSError as error:
        return fail("hard links", f"refused here: {error.strerror or error}", LOCAL)
    return ok("hard links", "a file can be linked to its name")
