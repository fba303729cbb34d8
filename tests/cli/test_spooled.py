"""`spool`: what could not be stored is listed, and stored once it can be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest

from recall_livekit import Settings
from recall_livekit.call import Call
from recall_livekit.cli.findings import Finding
from recall_livekit.cli.spooled import place_of
from recall_livekit.engine.engine import Engine
from recall_livekit.seams import SystemClock
from recall_livekit.spool.spool import Spool
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.faults import FaultyStore

from ..call.test_call import until
from .conftest import Invoke
from .filled import LEFT
from .terminal import Terminal

WORDS = ("said in the dark", "and still dark")


def spool_on(directory: Path, records: Path, call_id: str = LEFT) -> None:
    """Leave in the directory what a worker spooled whose store froze."""
    settings = Settings(spool_after=0.02, flush_wait=0.2, retry_last=0.05)

    async def course() -> None:
        store = FaultyStore(SqliteStore(records), Random(1), timeout=0.1)
        engine = Engine(store, SystemClock(), settings)
        spool = Spool.open(
            directory,
            address=place_of(f"sqlite:///{records}"),
            transport=engine,
            clock=SystemClock(),
            settings=settings,
        )
        call = Call(engine, SystemClock(), settings, call_id, spool=spool)
        call.start()
        assert await call.holding(5)
        store.freeze()
        for text in WORDS:
            call.record_turn("user", text)
        await until(lambda: call.spooled == len(WORDS))
        await call.aclose()
        await spool.aclose()
        store.thaw()
        await engine.aclose()

    asyncio.run(course())


@pytest.fixture
def spooled(own: Path, tmp_path: Path) -> Path:
    spool_on(tmp_path / "recall-spool", own)
    return tmp_path / "recall-spool"


def test_a_person_sees_what_waits(invoke: Invoke, spooled: Path, own: Path) -> None:
    ran = invoke("spool", "status", at=own)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"waits       {LEFT}  2 records, said ")
    assert "another address" not in ran.stdout
    assert "dark" not in ran.stdout


def test_a_program_reads_it(invoke: Invoke, spooled: Path, own: Path) -> None:
    told = json.loads(invoke("spool", "status", "--json", at=own).stdout)
    assert list(told) == [
        "name", "state", "size", "written_at", "tag", "call_id", "writer", "records", "said_at",
    ]  # fmt: skip
    assert (told["state"], told["call_id"], told["records"]) == ("waits", LEFT, 2)


def test_it_is_stored_and_gone(invoke: Invoke, spooled: Path, own: Path) -> None:
    ran = invoke("spool", "drain", at=own)
    assert (ran.code, ran.stdout) == (0, f"drained     {LEFT}, 2 stored\n")
    shown = invoke("show", LEFT, at=own).stdout
    assert all(text in shown for text in WORDS)
    assert list(spooled.iterdir()) == []
    again = invoke("spool", "drain", at=own)
    assert (again.code, again.stdout) == (0, "")
    assert f"nothing in {spooled} waits for {own}" in again.stderr


def test_what_belongs_elsewhere_stays(invoke: Invoke, spooled: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert "[of another address]" in invoke("spool", "status", at=elsewhere).stdout
    ran = invoke("spool", "drain", at=elsewhere)
    assert ran.code == 0
    assert "1 file is of another address: drain with its --url" in ran.stderr
    assert len(list(spooled.iterdir())) == 1


def test_what_cannot_be_stored_yet_is_kept_and_said(
    invoke: Invoke, spooled: Path, own: Path
) -> None:
    own.rename(own.parent / "away")
    own.write_text("in the way")
    ran = invoke("spool", "drain", at=own)
    assert ran.code == 3
    assert ran.stdout.startswith(f"waits       {LEFT}: ")
    assert "1 file is not stored" in ran.stderr
    assert len(list(spooled.iterdir())) == 1


def test_what_was_erased_is_deleted(invoke: Invoke, spooled: Path, own: Path) -> None:
    assert invoke("erase", LEFT, "--yes", at=own).code == 0
    ran = invoke("spool", "drain", at=own)
    assert ran.stdout.startswith(f"erased      {LEFT}")
    assert list(spooled.iterdir()) == []


def test_what_is_no_spool_is_for_a_person(invoke: Invoke, spooled: Path, own: Path) -> None:
    (file,) = spooled.iterdir()
    file.write_bytes(b"\x1b[2Jnot a spool\n" * 10)
    assert invoke("spool", "status", at=own).stdout.startswith("unreadable  ")
    ran = invoke("spool", "drain", at=own)
    assert ran.code == 1
    assert "a person has to look" in ran.stderr
    assert not set(ran.stdout + ran.stderr) & {"\x1b"}
    assert invoke("spool", "status", at=own).stdout.startswith("aside       ")
    assert "cannot be stored as they are" in findings(invoke, own)[-1].says


def test_nothing_is_spooled(invoke: Invoke, own: Path, tmp_path: Path) -> None:
    for args in (("status",), ("drain",)):
        ran = invoke("spool", *args, "--directory", str(tmp_path / "none"), at=own)
        assert (ran.code, ran.stdout) == (0, "")
    assert not (tmp_path / "none").exists()


def test_at_a_terminal(spooled: Path, own: Path) -> None:
    terminal = Terminal("spool", "drain", "--url", f"sqlite:///{own}", RECALL_SPOOL=str(spooled))
    assert terminal.end() == 0
    assert f"drained     {LEFT}, 2 stored\n" in terminal.shown


# --- doctor -------------------------------------------------------------------------------------


def findings(invoke: Invoke, directory: Path) -> list[Finding]:
    lines = invoke("doctor", "--json", at=directory).stdout.splitlines()
    return [Finding.model_validate_json(line) for line in lines]


def test_the_doctor_tells_what_waits(invoke: Invoke, spooled: Path, own: Path) -> None:
    found = findings(invoke, own)[-1]
    assert (found.level, found.what) == ("warn", "spool")
    assert f"2 records wait in {spooled}, the first was said " in found.says
    invoke("spool", "drain", at=own)
    assert findings(invoke, own)[-1].says == f"nothing is left over in {spooled}"
