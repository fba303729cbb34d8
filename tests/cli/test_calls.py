"""`calls`: what a person sees in a table, and what a program reads in lines."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from recall_livekit.cli import calls as module
from recall_livekit.engine.listing import CallSummary

from .conftest import Invoke
from .filled import FORGOTTEN, LEFT, LIVE, ODD, OLD, TABLE, Living
from .terminal import Terminal, at, shown_at_a_terminal


def test_in_a_pipe_each_call_is_a_line_of_columns(invoke: Invoke, filled: Path) -> None:
    ran = invoke("calls", at=filled)
    assert (ran.code, ran.stderr) == (0, "")
    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert {len(row) for row in rows} == {7}
    by_call = {row[0]: row[1:4] for row in rows}
    assert by_call[TABLE] == ["lapsed", "2", "5"]
    assert by_call[LEFT] == ["left", "1", "1"]
    assert by_call[FORGOTTEN] == ["erased", "1", "0"]
    assert len(rows) == 4 + len(ODD)


def test_the_one_heard_of_last_comes_first(invoke: Invoke, filled: Path) -> None:
    heard = [line.split("\t")[4] for line in invoke("calls", at=filled).stdout.splitlines()]
    assert heard == sorted(heard, reverse=True)
    assert invoke("calls", at=filled).stdout.splitlines()[-1].startswith(OLD)


def test_a_person_sees_a_table(filled: Path) -> None:
    shown, code = shown_at_a_terminal(["calls", *at(filled)])
    assert code == 0
    final = shown[shown.rindex("CALL (12)") :].splitlines()
    assert final[0].split("  ")[0] == "CALL (12)"
    assert "LAST HEARD" in final[0]
    table = next(line for line in final if line.startswith(TABLE))
    assert table.split()[1:4] == ["lapsed", "2", "5"]
    assert "s ago" in table or "just now" in table
    assert any(line.startswith(OLD) and "40 d ago" in line for line in final)
    assert any(line.startswith("$'red\\e[31m\\x07 alert'") for line in final)
    assert any("[bold]markup[/bold]" in line for line in final)


def test_no_id_drives_the_terminal(filled: Path) -> None:
    terminal = Terminal("calls", *at(filled))
    terminal.end()
    assert not set(terminal.raw) & set("\x07\u202e")


def test_a_state_can_be_asked_for(invoke: Invoke, own: Path) -> None:
    with Living(own):
        live = invoke("calls", "--state", "live", at=own).stdout.splitlines()
    assert [line.split("\t")[0] for line in live] == [LIVE]
    assert live[0].split("\t")[6] == "support"
    assert invoke("calls", "--state", "live", at=own).stdout == ""
    assert invoke("calls", "--state", "asleep", at=own).code == 2


def test_json_has_a_line_of_a_stable_form_for_each(invoke: Invoke, filled: Path) -> None:
    lines = invoke("calls", "--json", at=filled).stdout.splitlines()
    assert list(json.loads(lines[0])) == [
        "call_id", "state", "run", "turns", "epoch", "position", "holder", "agent_name",
        "opened_at", "said_at", "seen_at",
    ]  # fmt: skip
    summaries = [CallSummary.model_validate_json(line) for line in lines]
    assert {summary.call_id for summary in summaries} >= {TABLE, *ODD}


def test_so_many_and_no_more(invoke: Invoke, filled: Path) -> None:
    lines = invoke("calls", "--limit", "3", at=filled).stdout.splitlines()
    assert lines == invoke("calls", at=filled).stdout.splitlines()[:3]


def test_of_very_many_the_rest_follows_in_no_order(
    invoke: Invoke, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = invoke("calls", at=filled).stdout.splitlines()
    monkeypatch.setattr(module, "SORTED", 5)
    some = invoke("calls", at=filled).stdout.splitlines()
    assert sorted(some) == sorted(everything)
    assert len(some) == len(set(some))


def test_a_table_of_so_many_tells_of_how_many(filled: Path) -> None:
    shown, _ = shown_at_a_terminal(["calls", "--limit", "2", *at(filled)])
    assert len(shown[shown.rindex("CALL (12)") :].splitlines()) == 3


def test_a_table_is_of_a_bounded_size(
    filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "SORTED", 5)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    asyncio.run(module.list_calls(f"sqlite:///{filled}", state=None, limit=None, as_json=False))
    told = capsys.readouterr()
    assert "the newest 5 of 12" in told.err
    assert told.out[told.out.rindex("CALL (12)") :].count("\n") == 6


# --- where there is nothing ---------------------------------------------------------------------


def test_looking_makes_no_directory(invoke: Invoke, tmp_path: Path) -> None:
    missing = tmp_path / "not" / "here"
    for args in (
        ("calls",),
        ("show", "x"),
        ("export", "x"),
        ("erase", "x", "--yes"),
        ("prune", "--older-than", "1d", "--yes"),
    ):
        ran = invoke(*args, at=missing)
        assert (ran.code, ran.stdout) == (1, "")
        assert f"nothing is recorded in {missing}: no such directory" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_nor_anything_in_an_empty_one(invoke: Invoke, tmp_path: Path) -> None:
    ran = invoke("calls", at=tmp_path)
    assert ran.code == 1
    assert "no calls in it" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_where_workers_record(
    invoke: Invoke, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.rename(own.parent / "recall-data")
    assert TABLE in invoke("calls").stdout
    monkeypatch.setenv("RECALL_URL", f"sqlite:///{own.parent / 'elsewhere'}")
    assert "elsewhere" in invoke("calls").stderr


@pytest.mark.parametrize("url", ["mongodb://x", "sqlite:", "https://", "https://a:b@host"])
def test_an_address_of_nothing_is_refused(invoke: Invoke, url: str) -> None:
    ran = invoke("calls", "--url", url)
    assert ran.code == 2
    assert ran.stderr.startswith("recall-livekit: ")
    assert "a:b" not in ran.stderr


def test_a_damaged_file_hides_no_other_and_is_told(invoke: Invoke, own: Path) -> None:
    (own / "calls" / f"{'0' * 40}.db").write_bytes(b"no database" * 1000)
    ran = invoke("calls", at=own)
    assert ran.code == 1
    assert len(ran.stdout.splitlines()) == 4 + len(ODD)
    assert "is damaged" in ran.stderr
