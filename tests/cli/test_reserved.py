"""Recall's own chains: no command lists them, and what is erased takes its standby with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recall_livekit import Recall
from recall_livekit.call_ids import WATCHER_CALL_ID, standby_call_id

from .conftest import Invoke
from .filled import recall_at

CALL = "room"
STANDBY = standby_call_id(CALL)


async def fill(recall: Recall) -> None:
    async with recall:
        for call in (CALL, STANDBY, WATCHER_CALL_ID):
            async with recall.resume(call):
                pass


async def kinds(directory: Path, call: str) -> set[str]:
    async with recall_at(directory) as recall:
        return {entry.kind for entry in await recall.entries(call)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    asyncio.run(fill(recall_at(tmp_path / "own", days=2)))
    return tmp_path / "own"


def test_they_are_not_listed_and_can_be_looked_at(invoke: Invoke, directory: Path) -> None:
    listed = invoke("calls", "--json", at=directory).stdout.splitlines()
    assert [json.loads(line)["call_id"] for line in listed] == [CALL]
    exported = invoke("export", STANDBY, at=directory).stdout
    header, *entries = [json.loads(line) for line in exported.splitlines()]
    assert (header["call_id"], header["entries"]) == (STANDBY, len(entries))
    assert "\x1e" not in exported
    assert "$'\\x1erecall/standby/" in invoke("show", STANDBY, at=directory).stdout


def test_what_prune_erases_takes_its_standby_with_it(invoke: Invoke, directory: Path) -> None:
    dry = invoke("prune", "--older-than", "1d", "--dry-run", at=directory)
    assert "1 call would be erased" in dry.stderr
    ran = invoke("prune", "--older-than", "1d", "--yes", at=directory)
    assert "1 of 1 call erased" in ran.stderr
    assert asyncio.run(kinds(directory, STANDBY)) == {"stub", "erase"}
    assert "lease" in asyncio.run(kinds(directory, WATCHER_CALL_ID))
