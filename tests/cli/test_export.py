"""`export`: the chain, whole, in a form that is read again."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recall_livekit.cli import export
from recall_livekit.cli.export import ExportHeader
from recall_livekit.engine.entries import Entry, EraseEntry, StubEntry, dump_entry, load_entry
from recall_livekit.engine.history import history
from recall_livekit.stores.keys import call_key
from recall_livekit.stores.sqlite import SqliteStore

from .conftest import Invoke
from .filled import FORGOTTEN, ODD, TABLE
from .terminal import Terminal, at


def chain_of(directory: Path, call: str) -> list[Entry]:
    async def read() -> list[Entry]:
        store = SqliteStore(directory)
        try:
            return [load_entry(data) for data in await store.read(call, 0, 10_000)]
        finally:
            await store.aclose()

    return asyncio.run(read())


def append(directory: Path, call: str, position: int, entry: Entry) -> None:
    async def write() -> None:
        store = SqliteStore(directory)
        await store.append(call, position, dump_entry(entry))
        await store.aclose()

    asyncio.run(write())


def test_what_is_exported_is_the_chain(invoke: Invoke, filled: Path) -> None:
    ran = invoke("export", TABLE, at=filled)
    header, *lines = ran.stdout.splitlines()
    told = ExportHeader.model_validate_json(header)
    assert (ran.code, ran.stderr) == (0, "")
    assert (told.v, told.kind, told.call_id, told.entries) == (1, "chain", TABLE, 13)
    assert told.by == "recall-livekit 0.1.0"
    stored = chain_of(filled, TABLE)
    entries, beside = lines[: told.entries], lines[told.entries :]
    assert [load_entry(line.encode()) for line in entries] == stored
    (cut,) = (json.loads(line) for line in beside)
    assert (cut["kind"], cut["text"]) == ("partial", "There is, just beside the")
    assert [run.number for run in history(stored).runs] == [1, 2]


@pytest.mark.parametrize("odd", ODD)
def test_odd_words_come_back_as_they_were(invoke: Invoke, filled: Path, odd: str) -> None:
    header, *lines = invoke("export", "--", odd, at=filled).stdout.split("\n")[:-1]
    assert json.loads(header)["call_id"] == odd
    assert [line.isprintable() for line in lines] == [True] * len(lines)
    assert [load_entry(line.encode()) for line in lines] == chain_of(filled, odd)


def test_a_file_is_its_owner_s_alone_and_the_same(
    invoke: Invoke, filled: Path, tmp_path: Path
) -> None:
    file = tmp_path / "call.jsonl"
    ran = invoke("export", TABLE, "-o", str(file), at=filled)
    assert (ran.code, ran.stdout) == (0, "")
    assert f"13 entries of {TABLE} are in {file}" in ran.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    same = invoke("export", TABLE, "-o", "-", at=filled).stdout
    assert file.read_text().splitlines()[1:] == same.splitlines()[1:]
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_overwritten_only_by_force(invoke: Invoke, filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "call.jsonl"
    file.write_text("mine")
    ran = invoke("export", TABLE, "-o", str(file), at=filled)
    assert ran.code == 2
    assert "--force overwrites it" in ran.stderr
    assert file.read_text() == "mine"
    assert invoke("export", TABLE, "-o", str(file), "--force", at=filled).code == 0
    assert file.read_text().startswith('{"v":1,"kind":"chain"')


def test_nor_is_one_that_came_meanwhile(
    invoke: Invoke, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "call.jsonl"
    copy = export._copy

    async def copied(*args: Any) -> None:
        await copy(*args)
        file.write_text("mine")

    monkeypatch.setattr(export, "_copy", copied)
    assert invoke("export", TABLE, "-o", str(file), at=filled).code == 2
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_where_nothing_can_be_written_nothing_is_left(
    invoke: Invoke, filled: Path, tmp_path: Path
) -> None:
    ran = invoke("export", TABLE, "-o", str(tmp_path / "no" / "call.jsonl"), at=filled)
    assert ran.code == 1
    assert "cannot be written: No such file or directory" in ran.stderr
    ran = invoke("export", TABLE, "-o", str(tmp_path), "--force", at=filled)
    assert ran.code == 1
    assert invoke("export", "nobody", "-o", str(tmp_path / "x"), at=filled).code == 1
    assert list(tmp_path.iterdir()) == []


def test_an_erased_call_is_exported_as_what_is_left(invoke: Invoke, filled: Path) -> None:
    lines = invoke("export", FORGOTTEN, at=filled).stdout.splitlines()[1:]
    *stubs, erase = [load_entry(line.encode()) for line in lines]
    assert {type(stub) for stub in stubs} == {StubEntry}
    assert isinstance(erase, EraseEntry)


def test_what_should_be_erased_is_not_exported(invoke: Invoke, own: Path) -> None:
    """An erasure that was interrupted: its entry is there, the content below it still is."""
    append(own, TABLE, 13, EraseEntry(epoch=5, at=1.0))
    ran = invoke("export", TABLE, at=own)
    assert (ran.code, ran.stdout) == (1, "")
    assert "`recall-livekit erase` finishes it" in ran.stderr
    assert "half past seven" not in invoke("show", TABLE, "--at", "12", at=own).stdout
    assert invoke("erase", TABLE, "--yes", at=own).code == 0
    assert invoke("export", TABLE, at=own).code == 0


NEWER = """
import apsw, sys
db = apsw.Connection(sys.argv[1])
entry = b'{"v": 9, "kind": "hologram", "epoch": 4, "at": 1.0}'
db.execute("UPDATE entries SET entry = ? WHERE position = 6", (entry,)).fetchall()
db.close()
"""


def test_that_something_is_newer_is_said(invoke: Invoke, own: Path) -> None:
    file = own / "calls" / f"{call_key(TABLE)}.db"
    subprocess.run([sys.executable, "-c", NEWER, str(file)], check=True, timeout=20)
    ran = invoke("export", TABLE, at=own)
    assert ran.code == 0
    assert "1 entries or records are newer than this version" in ran.stderr


def test_a_long_one_shows_how_far_it_is(filled: Path, tmp_path: Path) -> None:
    terminal = Terminal("export", TABLE, "-o", str(tmp_path / "x"), *at(filled))
    assert terminal.end() == 0
    assert "exporting" in terminal.shown
    assert "13/13" in terminal.shown
