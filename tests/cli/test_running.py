"""How the command begins and ends: fast, in pipes, interrupted, and with a code for each end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recall_livekit import errors
from recall_livekit.cli.codes import code_of

from .conftest import Invoke
from .filled import ODD, TABLE
from .terminal import COMMAND, at, interrupted, piped

HEAVY = ("livekit", "pydantic", "apsw", "httpx2", "starlette", "uvicorn", "rich")


def imported(*args: str) -> set[str]:
    """Return which packages the command imports."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "recall_livekit.cli", *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    names = re.findall(r"^import time:.*\|\s+([\w.]+)$", ran.stderr, re.MULTILINE)
    assert names, ran.stderr
    return {name.split(".")[0] for name in names}


def test_help_imports_nothing_that_is_slow() -> None:
    for args in (("--help",), ("--version",)):
        assert not imported(*args) & set(HEAVY)
    typer_s_own = {"pydantic"}
    assert not imported("show", "--help") & (set(HEAVY) - typer_s_own)


def test_no_look_at_the_records_imports_livekit(filled: Path) -> None:
    for args in (("show", TABLE), ("doctor",)):
        assert not imported(*args, *at(filled)) & {"livekit", "httpx2", "starlette", "rich"}


def test_every_command_has_a_help_with_examples(invoke: Invoke) -> None:
    for command in ("serve", "calls", "show", "export", "erase", "prune", "doctor"):
        ran = invoke(command, "--help")
        assert ran.code == 0
        assert f"Examples:\n    recall-livekit {command}" in ran.stdout


def test_the_exit_codes_are_documented() -> None:
    told = " ".join(piped("--help").stdout.split())
    assert "0 done; 1 not done, or not found; 2 wrong usage; 3 the store or server" in told
    assert "130 interrupted; 141" in told


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StoreUnavailable("x"), 3),
        (errors.InvalidCallId("x"), 2),
        (errors.InvalidSettings("x"), 2),
        (errors.StoreUnusable("x"), 1),
        (errors.RoleTooLow("x"), 1),
        (errors.Fenced(1), 1),
    ],
)
def test_what_an_error_ends_with(error: errors.RecallError, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize("args", [("calls",), ("export", TABLE), ("show", TABLE)])
def test_a_reader_that_goes_away_is_no_fault(filled: Path, args: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *args, *at(filled)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(20) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_locale_without_its_letters_is_no_fault(filled: Path) -> None:
    ran = piped("show", *at(filled), "--", ODD[3], PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert "\\u65e5\\u672c" in ran.stdout


def test_it_can_be_interrupted_anywhere(own: Path) -> None:
    """Stopped before it has read anything: the interrupt comes when it goes on."""
    process = subprocess.Popen(
        [*COMMAND, "show", TABLE, "--follow", *at(own)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    ran = interrupted(process)
    assert ran.code in (130, -signal.SIGINT)
    assert "Traceback" not in ran.stderr


def test_run_as_a_module_or_by_its_name() -> None:
    name = Path(sys.executable).with_name("recall-livekit")
    done = subprocess.run([name, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == piped("--version").stdout


def test_a_log_for_machines_tells_no_text_of_an_exception() -> None:
    """It may quote what a caller said; for a person at the terminal it is told."""
    program = """
import logging, sys
from recall_livekit.cli.logs import log_to_stderr
log_to_stderr("INFO", as_json=sys.argv[1] == "json")
try:
    raise ValueError("my card is 4111")
except ValueError:
    logging.getLogger("x").exception("it failed")
"""
    told = {}
    for form in ("json", "text"):
        command = [sys.executable, "-c", program, form]
        told[form] = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    told_json = json.loads(told["json"])
    assert "4111" in told["text"]
    assert "4111" not in told["json"]
    assert told_json["message"] == "it failed"
    assert told_json["exception"].endswith("ValueError")
    assert 'File "<string>", line 6' in told_json["exception"]
