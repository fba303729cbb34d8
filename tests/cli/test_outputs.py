"""Outputs as an operator meets them: listed with a call, fetched, and part of an export."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from recall_livekit import Output, OutputMissing, Recall
from recall_livekit.stores.sqlite import SqliteStore

from .conftest import Invoke
from .terminal import at, piped, shown_at_a_terminal

CALL = "the call"
REPORT = "line one\nline two\r\n\x1b[2Jä中\n" * 100
MISSING = "7/0"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with a call that has two outputs, and one that is not there any more."""
    directory = tmp_path / "records"

    async def fill() -> None:
        async with (
            Recall(SqliteStore(directory)) as recall,
            recall.resume(CALL, room_sid="RM_1") as call,
        ):
            output = await call.keep_output("report", REPORT)
            assert output.ref == "0/0"
            await call.keep_output("menu", "")
            key = call.record_action("search", arguments='{"q": 1}')
            call.end_action(key, "done", result="line one", result_ref=output.ref)
            call._queue(Output, ref=MISSING, name="lost", chars=9)
            assert await call.flush(5)

    asyncio.run(fill())
    return directory


def test_show_tells_the_outputs_and_how_to_fetch_them(invoke: Invoke, kept: Path) -> None:
    shown = invoke("show", CALL, at=kept).stdout
    assert "Outputs, each by its ref: `recall-livekit fetch CALL REF`" in shown
    assert f"0/0  report, {len(REPORT)} characters: line one line two" in shown
    assert "7/0  lost, 9 characters" in shown
    assert "(all of it: ref 0/0)" in shown
    assert "\x1b" not in shown
    told = json.loads(invoke("show", CALL, "--json", at=kept).stdout)
    outputs = [one["output"]["ref"] for one in told["history"]["runs"][0]["outputs"]]
    assert outputs == ["0/0", "0/1", MISSING]


def test_an_output_that_was_found_missing_is_told_as_that_once(invoke: Invoke, kept: Path) -> None:
    async def look() -> None:
        async with (
            Recall(SqliteStore(kept)) as recall,
            recall.resume(CALL, room_sid="RM_1") as call,
        ):
            with pytest.raises(OutputMissing):
                await call.fetch_output(MISSING)
            assert await call.flush(5)

    asyncio.run(look())
    shown = invoke("show", CALL, at=kept).stdout
    assert shown.count(MISSING) == 1
    assert "7/0  lost, 9 characters, not there any more" in shown


def test_a_pipe_gets_the_text_as_it_is(kept: Path) -> None:
    ran = piped("fetch", CALL, "0/0", *at(kept), PYTHONUTF8="1", PYTHONIOENCODING="utf-8:strict")
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.replace("\r\n", "\n") == REPORT.replace("\r\n", "\n")  # `text=True` did it
    assert piped("fetch", CALL, "0/1", *at(kept)).stdout == ""


def test_a_terminal_is_not_driven_by_it(kept: Path) -> None:
    shown, code = shown_at_a_terminal(["fetch", CALL, "0/0", *at(kept)])
    assert code == 0
    assert "\\e[2J" in shown
    assert "\x1b[2J" not in shown


def test_a_file_gets_it_whole_and_is_its_owner_s_alone(
    invoke: Invoke, kept: Path, tmp_path: Path
) -> None:
    file = tmp_path / "report.txt"
    assert invoke("fetch", CALL, "0/0", "-o", str(file), at=kept).code == 0
    assert file.read_bytes() == REPORT.encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    ran = invoke("fetch", CALL, "0/1", "-o", str(file), at=kept)
    assert ran.code == 2
    assert "--force overwrites it" in ran.stderr
    assert invoke("fetch", CALL, "0/1", "-o", str(file), "--force", at=kept).code == 0
    assert file.read_bytes() == b""


@pytest.mark.parametrize("ref", [MISSING, "nonsense", "../../x", "0/2"])
def test_what_is_not_there_says_where_to_look(
    invoke: Invoke, kept: Path, tmp_path: Path, ref: str
) -> None:
    file = tmp_path / "report.txt"
    ran = invoke("fetch", CALL, ref, "-o", str(file), at=kept)
    assert ran.code == 1
    assert "`recall-livekit show` lists the outputs" in ran.stderr
    assert not file.exists()
    assert "there is no call" in invoke("fetch", "nobody", "0/0", at=kept).stderr


def test_an_export_has_the_outputs_and_says_which_are_missing(invoke: Invoke, kept: Path) -> None:
    ran = invoke("export", CALL, at=kept)
    assert ran.code == 0
    assert "1 outputs that the chain names are not there" in ran.stderr
    header, *lines = map(json.loads, ran.stdout.splitlines())
    beside = lines[header["entries"] :]
    assert [(one["kind"], one["ref"]) for one in beside] == [("output", "0/0"), ("output", "0/1")]
    assert beside[0]["text"] == REPORT
    assert "\x1b" not in ran.stdout


def test_an_erased_call_s_outputs_are_in_no_export(invoke: Invoke, kept: Path) -> None:
    assert invoke("erase", CALL, "--yes", at=kept).code == 0
    ran = invoke("export", CALL, at=kept)
    assert "line one" not in ran.stdout
    assert invoke("fetch", CALL, "0/0", at=kept).code == 1
