"""The demo of a call killed at the worst moments: it must work, and it must not flatter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from half_said_demo.check import judge_charges
from half_said_demo.payments import Ledger
from half_said_demo.script import CENTS, OFFER, charged

from recall_livekit import Action, Briefing

from ..cli.terminal import bounded

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "half_said.py"
LONGEST_S = 110


@contextmanager
def start(directory: Path, *search: Path) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(map(str, (*search, ROOT)))
    command = [sys.executable, str(DEMO), "--keep", str(directory)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    with bounded(process, LONGEST_S) as demo:
        yield demo


def shown(directory: Path, *search: Path) -> tuple[int, str]:
    """Run the demo; return its exit code, and all that it showed."""
    with start(directory, *search) as demo:
        output, _ = demo.communicate()
        return demo.returncode, output


def processes_of(directory: Path) -> list[str]:
    """The processes of the demo that keep their files in this directory."""
    commands = (" ".join(one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"]))
    return [one for one in commands if "half_said_demo" in one and str(directory) in one]


def test_the_demo_shows_that_nothing_is_charged_twice_or_lost(tmp_path: Path) -> None:
    code, output = shown(tmp_path)
    assert code == 0, output
    assert "\x1b" not in output
    recalled, plain = output.split("== The same call without recall")
    assert len(re.findall(r"^ +\+0 ms +worker \d +x SIGKILL", recalled, re.MULTILINE)) == 3
    assert "OK: 2 charges, each made once, and the records know them" in recalled
    for fact in (
        "looked up: receipt 1001",
        "looked up: no such charge",
        "went through, receipt 1001",
        "had not gone through, so I made it now, receipt 1002",
    ):
        assert fact in recalled, fact
    assert recalled.count("Hello") == 1
    assert_said_once(recalled)
    assert "the tickets were charged       once         2 times" in re.sub(r"\s+\n", "\n", plain)
    assert [one["order"] for one in Ledger(tmp_path / "recall-payments.jsonl").charges()] == [
        *CENTS
    ]
    assert processes_of(tmp_path) == []


def assert_said_once(output: str) -> None:
    """What was heard of the sentence, and what the next worker said, is all of it; a few words
    are said again, for they are written down every quarter of a second."""
    heard = re.search(r'The caller had heard: +"(.*) --"', output)
    rest = re.search(r'The next worker said: "-- (.*)"', output)
    assert heard, output
    assert rest, output
    before, after, words = heard[1].split(), rest[1].split(), OFFER.split()
    assert before == words[: len(before)]
    assert after == words[-len(after) :]
    assert len(words) <= len(before) + len(after) <= len(words) + 4


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_neither_workers_nor_provider_outlive_the_demo(tmp_path: Path, end: signal.Signals) -> None:
    with start(tmp_path) as demo:
        assert demo.stdout is not None
        while "lease taken" not in (line := demo.stdout.readline()):
            assert line, "it ended before it began"
        assert len(processes_of(tmp_path)) == 5
        demo.send_signal(end)
        demo.communicate(timeout=10)
    assert demo.returncode == (-end if end is signal.SIGKILL else 130)
    deadline = time.monotonic() + 10
    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of(tmp_path) == []


BLIND = """
import sys
if "half_said_demo.worker" in sys.orig_argv:
    from half_said_demo.payments import Payments
    async def find(self, order):
        return {found}
    Payments.find = find
"""


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        ("None", ["charged twice: the tickets, receipts 1001, 1002"]),
        pytest.param(
            "1",
            ["lost: the records do not know of receipt 1001", "lost: the programme was never"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_demo_fails_if_a_successor_does_not_look(
    tmp_path: Path, found: str, faults: Sequence[str]
) -> None:
    """It takes a charge for not made, and makes it again; or for made, and forgets it."""
    (tmp_path / "sitecustomize.py").write_text(BLIND.format(found=found))
    code, output = shown(tmp_path, tmp_path)
    assert code == 1, output
    for fault in faults:
        assert f"FAULT: {fault}" in output, output


# --- the check is worth something ---------------------------------------------------------------


def judged(directory: Path, paid: Sequence[str], known: Sequence[int], *, unsure: bool) -> str:
    """The faults, where so many orders were paid, and the records know these receipts."""
    ledger = Ledger(directory / "ledger")
    for order in paid:
        ledger.take(order, CENTS[order])
    done = [
        Action(at=0, key=str(receipt), tool="charge", status="done", result=charged(receipt))
        for receipt in known
    ]
    left = [Action(at=0, key="open", tool="charge", arguments='{"order": "x"}')] if unsure else []
    briefing = Briefing(call_id="room", finished=tuple(done), actions=tuple(left))
    return "; ".join(judge_charges(ledger, briefing))


@pytest.mark.parametrize(
    ("paid", "known", "unsure", "fault"),
    [
        (["tickets", "programme"], [1001, 1002], False, ""),
        (["tickets", "tickets", "programme"], [1001, 1002, 1003], False, "charged twice"),
        (["tickets"], [1001], False, "the programme was never charged"),
        (["tickets", "programme"], [1001], False, "do not know of receipt 1002"),
        (["tickets", "programme"], [1001, 1002], True, "still open"),
    ],
)
def test_what_is_wrong_with_the_money_is_noticed(
    tmp_path: Path, paid: list[str], known: list[int], unsure: bool, fault: str
) -> None:
    faults = judged(tmp_path, paid, known, unsure=unsure)
    assert fault in faults
    assert bool(faults) == bool(fault)


def test_the_ledger_is_what_was_paid(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.charges() == []
    assert [ledger.take("tickets", 8000), ledger.take("tickets", 8000)] == [1001, 1002]
    assert Ledger(tmp_path / "ledger").receipts("tickets") == [1001, 1002]
    assert json.loads((tmp_path / "ledger").read_text().splitlines()[0])["cents"] == 8000
