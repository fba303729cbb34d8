"""What ``doctor`` checks of the spool: what waits there, and whether somebody has to look."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..spool.status import FileStatus
from .findings import Finding, fail, ok, warn
from .spooled import found_in
from .times import ago

__all__ = ["spool"]

LOOK = "`recall-livekit spool status` tells which, `spool drain --aside` tries them again"


def spool(directory: Path) -> Iterator[Finding]:
    """Check the directory where workers of this machine spool."""
    try:
        files = found_in(directory)
    except OSError as error:
        yield fail("spool", f"{directory}: {error.strerror}", "check who may read it")
        return
    if directory.exists() and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield fail("spool", f"{directory} cannot be written", f"chown or chmod {directory}")
    yield _waiting(directory, files)
    odd = [file for file in files if file.state in ("aside", "newer", "unreadable")]
    if odd:
        yield warn("spool", f"{len(odd)} cannot be stored as they are", LOOK)


def _waiting(directory: Path, files: Sequence[FileStatus]) -> Finding:
    waiting = [file for file in files if file.state == "waits" and file.records]
    held = sum(file.records for file in files if file.state == "held")
    beside = f", {held} more with living workers" if held else ""
    if not waiting:
        return ok("spool", f"nothing is left over in {directory}{beside}")
    records = sum(file.records for file in waiting)
    since = ago(min(file.said_at or file.written_at for file in waiting), time.time())
    says = f"{records} records wait in {directory}, the first was said {since}{beside}"
    return warn("spool", says, "a worker stores them, or `recall-livekit spool drain`")
