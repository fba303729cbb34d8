"""The demo over a server: what it tells must be so, and a lost turn must not pass unnoticed."""

import asyncio
import importlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recall_livekit import Recall
from recall_livekit.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "remote_recovery.py"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"},
    "PYTHONPATH": str(ROOT),
}
LONGEST_S = 90
A_WAIT_MS = 1500
"""Less than any request to a server that is not there may take; far more than a reply does."""
CALL = "room-1"


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(DEMO), "--plain", *arguments]
    output = subprocess.PIPE
    return subprocess.Popen(command, stdout=output, stderr=output, text=True, env=ENVIRONMENT)


def told(output: str, pattern: str) -> list[str]:
    found = re.findall(pattern, output)
    assert found, f"nothing like {pattern!r} in:\n{output}"
    return found


def alive(output: str) -> list[str]:
    """The states of those processes of the demo that are still there."""
    pids = told(output, r"is process (\d+)") + re.findall(r"again: process (\d+)", output)
    command = ["ps", "-o", "stat=", "-p", ",".join(pids)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [state for state in listed.stdout.split() if not state.startswith("Z")]


def test_the_demo_shows_a_call_that_survives_both(tmp_path: Path) -> None:
    with start("--keep", str(tmp_path)) as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert "\x1b" not in output
    assert output.count("Hello") == 1
    assert "the server has each once, in order: nothing lost" in output

    _, after_worker, after_server = output.split("SIGKILL")
    takeover = "dead", "lease taken: epoch 2", "records read: 2 turns", "first word"
    for fact in takeover:
        assert re.search(rf"\+\S+ m?s +worker \d +\S +{re.escape(fact)}", after_worker), fact
    assert int(told(output, r"killed: (\d+) ms of silence")[0]) >= 300

    outage, back = after_server.split("answers again: same port, same store")
    lags = [int(lag) for lag in told(outage, r"down: (\d+) records wait at worker 2")]
    assert len(lags) == 2
    assert 0 < lags[0] < lags[1]
    assert "[recorded]" not in outage
    assert "[waiting]" in outage
    assert int(told(back, r"(\d+) records arrived, each once, in order")[0]) >= lags[1]
    assert "caller: Yes, please. [recorded]" in back
    assert back.count("tool book(") == 1

    waits = told(output, r" (\d+) ms +(?:answers|down, \d+ records wait)")
    assert len(waits) == 5
    assert all(int(wait) < A_WAIT_MS for wait in waits)
    assert alive(output) == []
    assert_no_key(output, tmp_path)


def assert_no_key(output: str, directory: Path) -> None:
    key = re.compile(rb"recall_[0-9a-f]{16}_[A-Za-z0-9_-]{20}")
    assert not key.search(output.encode())
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert len(files) >= 4
    for path in files:
        assert not key.search(path.read_bytes()), path


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_demo(tmp_path: Path, end: signal.Signals) -> None:
    output = ""
    with start("--keep", str(tmp_path)) as demo:
        assert demo.stdout is not None
        while "joined as a standby" not in (line := demo.stdout.readline()):
            assert line, "it ended before it began"
            output += line
        assert len(alive(output)) == 3
        demo.send_signal(end)
        demo.communicate(timeout=10)
    assert demo.returncode == (-end if end is signal.SIGKILL else 130)
    deadline = time.monotonic() + 5
    while alive(output) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(output) == []


FORGETFUL = """
import sys
if "recovery.worker" in sys.orig_argv:
    from recall_livekit.outbox import Outbox
    keep = Outbox.add
    def add(self, record, *more):
        forgotten = getattr(record, "content", "").startswith("Could we")
        return self.last if forgotten else keep(self, record, *more)
    Outbox.add = add
"""


@pytest.mark.long
def test_the_demo_fails_if_a_turn_of_the_outage_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FORGETFUL)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    with start() as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 1, output + errors
    assert "FAULT: lost: 'Could we sit outside?'" in output
    assert "records arrived, not as they were said" in output


# --- the check is worth something ---------------------------------------------------------------

Told = dict[str, Any]
SAID: list[Told] = [
    {"kind": "turn", "id": "a", "role": "assistant", "text": "Hello?"},
    {"kind": "turn", "id": "b", "role": "user", "text": "A table for four."},
    {"kind": "note", "id": "c", "changes": {"goal": "A table", "progress": None}},
    {"kind": "turn", "id": "d", "role": "assistant", "text": "Gladly."},
]
WRONG = [
    ([*SAID, SAID[-1]], "doubled"),
    ([*SAID, {**SAID[-1], "id": "e"}], "doubled, or nobody said it: 'Gladly.'"),
    ([SAID[1], SAID[0], *SAID[2:]], "out of order"),
    ([*SAID[:3], {**SAID[3], "text": "Never."}], "changed"),
]


@pytest.fixture
def recovery(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The demo's modules, by name."""
    monkeypatch.syspath_prepend(DEMO.parent)
    return lambda name: importlib.import_module(f"recovery.{name}")


async def write(recall: Recall, recorded: Sequence[Told]) -> None:
    async with recall.resume(CALL) as call:
        for record in recorded:
            if record["kind"] == "note":
                call.update_working_state(goal=record["changes"]["goal"])
            else:
                call.record_turn(record["role"], record["text"], message_id=record["id"])
        assert await call.flush(5)


def judged(check: Any, directory: Path, recorded: Sequence[Told], told: Sequence[Told]) -> Any:
    """The verdict where `recorded` was written of SAID, and `told` was told to be durable."""

    async def judge() -> Any:
        async with Recall(SqliteStore(directory)) as recall:
            await write(recall, recorded)
            return await check.judge_said(recall, CALL, SAID, told)

    return asyncio.run(judge())


def test_all_is_well(recovery: Any, tmp_path: Path) -> None:
    verdict = judged(recovery("check"), tmp_path, SAID, SAID)
    assert (verdict.acknowledged, verdict.found, verdict.faults) == (4, 4, [])
    assert verdict.exit_code == 0


@pytest.mark.parametrize("missing", range(len(SAID)))
def test_a_lost_record_is_noticed(recovery: Any, tmp_path: Path, missing: int) -> None:
    recorded = [*SAID[:missing], *SAID[missing + 1 :]]
    verdict = judged(recovery("check"), tmp_path, recorded, SAID)
    assert (verdict.acknowledged, verdict.found) == (4, 3)
    assert "lost" in verdict.faults[0]
    assert verdict.exit_code == 1


@pytest.mark.parametrize(("recorded", "fault"), WRONG)
def test_what_is_wrong_is_noticed(
    recovery: Any, tmp_path: Path, recorded: list[Told], fault: str
) -> None:
    verdict = judged(recovery("check"), tmp_path, recorded, SAID)
    assert any(fault in one for one in verdict.faults), verdict.faults
    assert verdict.exit_code == 1


@pytest.mark.parametrize("missing", range(len(SAID)))
def test_what_nobody_was_told_is_durable_is_a_fault(
    recovery: Any, tmp_path: Path, missing: int
) -> None:
    acknowledged = [*SAID[:missing], *SAID[missing + 1 :]]
    verdict = judged(recovery("check"), tmp_path, SAID, acknowledged)
    assert "never acknowledged" in verdict.faults[0]
    assert verdict.exit_code == 1


def arrival(check: Any, directory: Path, recorded: Sequence[Told]) -> Any:
    async def arrive() -> Any:
        async with Recall(SqliteStore(directory)) as recall:
            await write(recall, SAID[:1])
            before = len(await check.entries_from(recall, CALL, 0))
            await write(recall, recorded)
            return check.arrived(await check.entries_from(recall, CALL, before), SAID[1:])

    return asyncio.run(arrive())


def test_what_had_waited_has_arrived(recovery: Any, tmp_path: Path) -> None:
    assert arrival(recovery("check"), tmp_path / "1", SAID[1:]) == (3, [])
    newer = {**SAID[1], "id": "e"}
    assert arrival(recovery("check"), tmp_path / "2", [*SAID[1:], newer]) == (4, [])


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param([SAID[2], SAID[3]], id="lost"),
        pytest.param([*SAID[1:], SAID[3]], id="doubled"),
        pytest.param([SAID[3], SAID[1]], id="swapped"),
        pytest.param([], id="all lost"),
    ],
)
def test_what_did_not_arrive_as_said_is_noticed(
    recovery: Any, tmp_path: Path, recorded: list[Told]
) -> None:
    _, faults = arrival(recovery("check"), tmp_path, recorded)
    assert faults


# --- what is shown is so ------------------------------------------------------------------------


class Shown:
    """A screen that remembers its rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.gauges: list[Any] = []

    def row(self, row: Any) -> None:
        self.rows.append((row.column, row.text, row.mark))

    def growing(self, row: Any) -> None:
        pass

    def gauge(self, gauge: Any) -> None:
        self.gauges.append(gauge)


def turn(event: Any, at: float, id_: str, text: str) -> Any:
    return event("turn", at, {"id": id_, "role": "assistant", "text": text})


def acknowledged(event: Any, at: float, *ids: str) -> Any:
    return event("acknowledged", at, {"records": [{"id": one} for one in ids]})


def test_a_row_says_recorded_only_when_it_is(recovery: Any) -> None:
    event, shown = recovery("wire").Event, Shown()
    timeline = recovery("outage").OutageTimeline(shown, True, 0.0)
    timeline.show(2, turn(event, 1.0, "a", "Before."))
    assert shown.rows == []
    timeline.show(2, acknowledged(event, 1.1, "a"))
    timeline.server_killed(2.0, 2.1)
    timeline.show(2, turn(event, 3.0, "b", "Meanwhile."))
    timeline.show(2, event("listening", 4.0, {"url": "there"}))
    timeline.drained("1 record", 5.0)
    timeline.show(2, turn(event, 6.0, "c", "After."))
    timeline.show(2, acknowledged(event, 6.1, "b", "c"))
    said = [row for row in shown.rows if row[0] == 2]
    assert said == [
        (2, "Before.", "recorded"),
        (2, "Meanwhile.", "waiting"),
        (2, "After.", "recorded"),
    ]


def test_a_sentence_goes_on_across_the_kill_of_the_server(recovery: Any) -> None:
    event, shown = recovery("wire").Event, Shown()
    timeline = recovery("outage").OutageTimeline(shown, True, 0.0)
    timeline.show(2, event("heard", 0.9, {"text": "Please."}))
    timeline.show(2, event("sound", 1.0, {"known": [], "waiting": 0, "spooled": 0}))
    timeline.show(2, event("word", 1.1, {"text": "So that "}))
    timeline.server_killed(1.2, 1.3)
    timeline.show(2, event("word", 1.4, {"text": "is all."}))
    timeline.show(2, turn(event, 1.5, "a", "So that is all."))
    assert [text.strip() for column, text, _ in shown.rows if column == 2] == [
        "first word",
        "So that",
        "... is all.",
    ]
    assert timeline.replies[0].text == "So that is all."
    assert timeline.replies[0].waited == pytest.approx(100)
    assert timeline.replies[0].up


def test_the_gauge_shows_what_waits_and_for_how_long(recovery: Any) -> None:
    event, shown = recovery("wire").Event, Shown()
    timeline = recovery("outage").OutageTimeline(shown, True, 0.0)
    timeline.server_killed(10.0, 10.1)
    lag = {"waiting": 3, "spooled": 2, "epoch": 2}
    timeline.show(2, event("lag", 12.5, lag))
    timeline.server_started(7, 13.0)
    timeline.show(2, event("lag", 14.0, {**lag, "waiting": 4}))
    timeline.show(2, event("listening", 15.0, {"url": "there"}))
    timeline.show(2, event("lag", 16.0, {**lag, "waiting": 0, "spooled": 0, "epoch": 3}))
    drawn = recovery("rich_screen").drawn
    down, starts, answers, empty = (drawn(gauge).plain for gauge in shown.gauges)
    assert "down for 2.5 s" in down
    assert "3 ▮▮▮ 2 on the worker's disk" in down
    assert "starts for 4.0 s" in starts
    assert "answers" in answers
    assert "▮▮▮▮" in answers
    assert "▮" not in empty
    assert timeline.outage.most_waiting == 4
    assert (timeline.outage.back_at, timeline.outage.drained_at) == (15.0, 16.0)
    assert (2, "the lease had lapsed; taken again: epoch 3", "") in shown.rows


def test_three_columns_are_drawn(recovery: Any, capsys: pytest.CaptureFixture[str]) -> None:
    row = recovery("timeline").Row
    screen = recovery("rich_screen").RichScreen()
    try:
        screen.columns((11, 12, 13))
        screen.row(row(1, "caller", "0.1 s", "Hello?", "waiting"))
        screen.row(row(3, "death", "+0 ms", "SIGKILL"))
    finally:
        screen.close()
    head, caller, death = capsys.readouterr().out.splitlines()[:3]
    assert head.index("worker 1") < head.index("worker 2") < head.index("server")
    assert caller.index("caller Hello? ◌") == head.index("worker 1")
    assert death.index("✗ SIGKILL") == head.index("server")
