"""Spool files as a dead worker would have left them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recall_livekit.models import Record, Turn
from recall_livekit.spool.format import Facts, Header, facts_line, header_line, record_line

from .conftest import CALL, Process

NOW = 2_000_000_000.0


def turns(*texts: str, at: float = NOW) -> list[Record]:
    return [Turn(at=at, role="user", content=text) for text in texts]


def header(process: Process, writer: str, **origin: Any) -> Header:
    return process.spool.header(
        origin.get("call_id", CALL), writer, origin.get("sid"), origin.get("caller")
    )


def plant(
    process: Process,
    writer: str,
    records: Sequence[Record],
    facts: Facts | None = None,
    first: int = 1,
    **origin: Any,
) -> Path:
    """Write a file of this writer's records, numbered from `first`."""
    head = header(process, writer, **origin)
    lines = [header_line(head), facts_line(facts or Facts())]
    lines += [record_line(number, record) for number, record in enumerate(records, first)]
    process.directory.mkdir(mode=0o700, exist_ok=True)
    path = process.directory / process.spool.file(head).name
    path.write_bytes(b"".join(lines))
    return path
