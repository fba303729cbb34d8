"""The demo on a real LiveKit server: it must work, tell what is so, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from ..cli.terminal import bounded

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "livekit_recovery.py"
LONGEST_S = 110
CAME = r"- has the call"


@contextmanager
def start(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(DEMO), "--plain", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    with bounded(process, LONGEST_S + 5) as demo:
        yield demo


def processes_in(directory: Path) -> list[str]:
    """The processes that work in this directory, or were told of it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        command = " ".join(process.info["cmdline"] or [])
        told = str(directory) in command and str(DEMO) not in command
        alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if alive and (told or process.info["cwd"] == str(directory)):
            found.append(command)
    return found


def assert_nothing_is_left(directory: Path) -> None:
    deadline = time.monotonic() + 5
    while (left := processes_in(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def silences(output: str) -> dict[str, str]:
    """What the last table says of each call."""
    named = ("LiveKit alone", "With recall_livekit", "With a standby")
    found = {name: re.findall(rf"^{name}  +(\S.*)$", output, re.MULTILINE) for name in named}
    return {name: lines[-1] for name, lines in found.items()}


@pytest.mark.livekit
def test_the_demo_shows_three_calls(tmp_path: Path) -> None:
    with start("--keep", str(tmp_path)) as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    assert "\x1b" not in output
    assert "FAULT" not in output
    assert output.count("SIGKILL, to the worker") == 3
    assert output.count("Hello, this is the bistro!") == 3
    assert output.count("It is booked. Goodbye, Ada!") == 2
    assert len(re.findall(r"Very well: a table .* --$", output, re.MULTILINE)) == 3
    alone, watched, standby = output.split("\n== ")[2:5]
    assert "the caller gives up" in alone
    assert "first word" not in alone
    for resumed in (watched, standby):
        assert "first word" in resumed.split("SIGKILL")[1]
        assert "Hello" not in resumed.split("SIGKILL")[1]
    assert "stands by, silent" in standby.split("SIGKILL")[0]
    told = silences(output)
    assert "nobody came" in told["LiveKit alone"]
    assert "of silence" in told["With recall_livekit"]
    for name in ("alone", "watched", "standby"):
        assert f"listen: {tmp_path / name}.wav" in output
        assert audible_seconds(tmp_path / f"{name}.wav") > 6
    assert_nothing_is_left(tmp_path)


def audible_seconds(path: Path) -> float:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        rate = file.getframerate()
    left = samples[::2][: len(samples) // 2 // 480 * 480].astype(np.float64).reshape(-1, 480)
    return float(np.count_nonzero(np.sqrt(np.mean(left**2, axis=1)) > 100) * 480 / rate)


@pytest.mark.livekit
@pytest.mark.parametrize(
    "end", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_nothing_outlives_the_demo(tmp_path: Path, end: signal.Signals) -> None:
    with start("--keep", str(tmp_path)) as demo:
        assert demo.stdout is not None
        while not re.search(CAME, line := demo.stdout.readline()):
            assert line, "it ended before it began"
        assert len(processes_in(tmp_path)) >= 5
        demo.send_signal(end)
        demo.communicate(timeout=15)
    assert demo.returncode == (-end if end is signal.SIGKILL else 130)
    assert_nothing_is_left(tmp_path)


FORGETFUL = """
import os
if os.environ.get("MODE") == "recall":
    from recall_livekit.livekit import session
    from recall_livekit.livekit.seeds import seeding
    session.seed_items = lambda briefing: []
"""


@pytest.mark.long
@pytest.mark.livekit
def test_the_demo_fails_if_the_successor_knows_nothing(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FORGETFUL)
    with start(PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}") as demo:
        output, errors = demo.communicate(timeout=LONGEST_S)
    assert demo.returncode == 1, output + errors
    assert "FAULT: 2. With recall_livekit: the successor never said 'Ada'" in output


def test_without_a_server_it_says_why(tmp_path: Path) -> None:
    with start(LIVEKIT_SERVER_BIN=str(tmp_path / "nothing")) as demo:
        output, errors = demo.communicate(timeout=30)
    assert demo.returncode == 1
    assert errors == ""
    assert f"FAULT: {tmp_path / 'nothing'} is no program" in output
