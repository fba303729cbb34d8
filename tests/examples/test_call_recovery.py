"""The demo is the first thing that a newcomer sees: it must work, and it must not flatter."""

import asyncio
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from recall_livekit import Recall
from recall_livekit.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "call_recovery.py"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"},
    "PYTHONPATH": str(ROOT),
}
LONGEST_S = 60
CALL = "room-1"


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(DEMO), *arguments]
    output = subprocess.PIPE
    return subprocess.Popen(command, stdout=output, stderr=output, text=True, env=ENVIRONMENT)


def workers_of(directory: Path) -> list[str]:
    """The worker processes that keep their records in this directory."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    )
    lines = listed.stdout.splitlines()
    return [line for line in lines if "recovery.worker" in line and str(directory) in line]


def test_the_demo_shows_a_call_that_survives(tmp_path: Path) -> None:
    with start("--keep", str(tmp_path)) as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert "\x1b" not in output
    counted = re.search(r"OK: (\d+) records acknowledged, (\d+) found: nothing lost", output)
    assert counted
    assert counted[1] == counted[2]
    assert int(counted[1]) >= 8
    recalled, plain = output.split("== The same call without recall")
    after = recalled.split("SIGKILL")[1]
    for fact in ("dead", "records read", "lease taken: epoch 2", "first word", "tool book("):
        assert re.search(rf"\+\S+ m?s +worker \d +\S +{re.escape(fact)}", "\n" + after), fact
    assert "Hello" not in after
    assert "Hello" in plain
    assert re.search(r"greeted again\? +no +yes", plain)
    assert re.search(r"asked again\? +no +yes: ", plain)
    assert re.search(r"words of the caller known +14 of 14 +0 of 14", plain)
    assert (tmp_path / "records").is_dir()
    assert workers_of(tmp_path) == []


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_demo(tmp_path: Path, end: signal.Signals) -> None:
    with start("--keep", str(tmp_path)) as demo:
        assert demo.stdout is not None
        while "lease taken" not in (line := demo.stdout.readline()):
            assert line, "it ended before it began"
        assert len(workers_of(tmp_path)) == 2
        demo.send_signal(end)
        demo.communicate(timeout=10)
    assert demo.returncode == (-end if end is signal.SIGKILL else 130)
    deadline = time.monotonic() + 5
    while workers_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert workers_of(tmp_path) == []


FORGETFUL = """
import sys
if "recovery.worker" in sys.orig_argv:
    from recall_livekit.outbox import Outbox
    keep = Outbox.add
    def add(self, record):
        forgotten = getattr(record, "content", "").startswith("At seven")
        return self.last if forgotten else keep(self, record)
    Outbox.add = add
"""


@pytest.mark.long
def test_the_demo_fails_if_a_record_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FORGETFUL)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    with start() as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 1, output + errors
    assert "FAULT: lost: 'At seven, and my name is Ada.'" in output
    assert "FAULT: the resumed agent asked again for the time" in output


# --- the check is worth something ---------------------------------------------------------------

TOLD: list[dict[str, Any]] = [
    {"kind": "turn", "id": "a", "role": "assistant", "text": "Hello?"},
    {"kind": "turn", "id": "b", "role": "user", "text": "A table for four."},
    {"kind": "note", "id": "c", "changes": {"goal": "A table", "progress": None}},
    {"kind": "turn", "id": "d", "role": "assistant", "text": "Gladly."},
]


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(DEMO.parent)
    return importlib.import_module("recovery.check")


def judged(check: Any, directory: Path, recorded: list[dict[str, Any]]) -> Any:
    """The verdict on a call in which only `recorded` was written of all that was acknowledged."""

    async def judge() -> Any:
        async with Recall(SqliteStore(directory)) as recall, recall.resume(CALL) as call:
            for record in recorded:
                if record["kind"] == "note":
                    call.update_working_state(goal=record["changes"]["goal"])
                else:
                    call.record_turn(record["role"], record["text"], message_id=record["id"])
            assert await call.flush(5)
        return await check.judge(SqliteStore(directory), CALL, TOLD)

    return asyncio.run(judge())


def test_all_is_well(check: Any, tmp_path: Path) -> None:
    verdict = judged(check, tmp_path, TOLD)
    assert (verdict.acknowledged, verdict.found, verdict.faults) == (4, 4, [])
    assert verdict.exit_code == 0


@pytest.mark.parametrize("missing", range(len(TOLD)))
def test_a_lost_record_is_noticed(check: Any, tmp_path: Path, missing: int) -> None:
    verdict = judged(check, tmp_path, [*TOLD[:missing], *TOLD[missing + 1 :]])
    assert (verdict.acknowledged, verdict.found) == (4, 3)
    assert "lost" in verdict.faults[0]
    assert verdict.exit_code == 1


@pytest.mark.parametrize(
    ("recorded", "fault"),
    [
        ([*TOLD, TOLD[-1]], "doubled"),
        ([TOLD[1], TOLD[0], *TOLD[2:]], "out of order"),
        ([*TOLD[:3], {**TOLD[3], "text": "Never."}], "changed"),
    ],
)
def test_what_is_wrong_is_noticed(
    check: Any, tmp_path: Path, recorded: list[dict[str, Any]], fault: str
) -> None:
    verdict = judged(check, tmp_path, recorded)
    assert fault in verdict.faults[0]
    assert verdict.exit_code == 1
