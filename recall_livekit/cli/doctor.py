"""``doctor``: what is wrong, and what to do about it, one line a check."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from ..remote.address import is_remote
from ..spool.place import spool_directory
from .checks_directory import directory
from .checks_machine import environment, software
from .checks_spool import spool
from .codes import FAILED, Failed
from .findings import Finding
from .opening import address, directory_of
from .paper import Paper, Span, put

__all__ = ["doctor"]

STYLES = {"ok": "green", "warn": "bold yellow", "fail": "bold red"}


async def doctor(url: str | None, *, as_json: bool) -> None:
    """Check everything, and write each finding as it is made.

    Raises:
        Failed: Something failed.
        InvalidSettings: It is no address.
    """
    paper = Paper()
    failed = 0
    async for finding in _findings(address(url), given=url is not None):
        failed += finding.level == "fail"
        if as_json:
            put(finding.model_dump_json())
        else:
            _write(paper, finding)
    if failed:
        raise Failed(f"{failed} check{'' if failed == 1 else 's'} failed", FAILED)


async def _findings(url: str, *, given: bool) -> AsyncIterator[Finding]:
    remote = is_remote(url)
    path = directory_of(url)
    for finding in software(embedded=not remote):
        yield finding
    for finding in environment(url, given, os.environ):
        yield finding
    if remote:
        from .checks_server import server  # loads an HTTP client: only where one is used

        async for finding in server(url):
            yield finding
    elif path is not None:
        for finding in directory(path):
            yield finding
    for finding in spool(spool_directory(None)):
        yield finding
    async for finding in _of_livekit():
        yield finding


async def _of_livekit() -> AsyncIterator[Finding]:
    if os.environ.get("LIVEKIT_URL"):
        from .checks_livekit import livekit  # loads LiveKit's API: only where a server is named

        async for finding in livekit(os.environ):
            yield finding


def _write(paper: Paper, finding: Finding) -> None:
    remedy = f"  → {finding.remedy}" if finding.remedy else ""
    paper.line(
        Span(f"{finding.level:<6}", STYLES[finding.level]),
        Span(f"{finding.what:<20}", "bold"),
        body=f"{finding.says}{remedy}",
    )
