"""Running the command as people do: at a terminal, in a pipe, and interrupted."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "recall_livekit.cli"]
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ran(NamedTuple):
    code: int
    stdout: str
    stderr: str


def piped(*args: str, **environment: str) -> Ran:
    """Run it in pipes, without a stdin."""
    done = subprocess.run(
        [*COMMAND, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def at(directory: Path) -> list[str]:
    return ["--url", f"sqlite:///{directory}"]


class Terminal:
    """The command at a terminal of 100 columns. Everything that it shows is in `shown`."""

    def __init__(self, *args: str, **environment: str) -> None:
        self.raw = ""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.environ.update({"TERM": "xterm-256color", "COLUMNS": "100"} | environment)
            os.execv(COMMAND[0], [*COMMAND, *args])
        termios.tcsetwinsize(self._fd, (40, 100))

    @property
    def shown(self) -> str:
        """What was shown, without colours and movements."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def until(self, text: str, seconds: float = 20.0) -> None:
        """Wait until this is shown."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.shown!r}"
            assert self._read(0.1), f"{text!r} is not in {self.shown!r}, which is all"

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        self.type("\x03")

    def end(self) -> int:
        """Wait for its end; return the exit code."""
        try:
            while self._read(20.0):
                pass
        finally:
            os.close(self._fd)
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)

    def _read(self, seconds: float) -> bool:
        """Read on; False at the end."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # how Linux tells the end of a terminal
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)


def shown_at_a_terminal(args: Sequence[str], **environment: str) -> tuple[str, int]:
    terminal = Terminal(*args, **environment)
    code = terminal.end()
    return terminal.shown, code


@contextmanager
def bounded(process: subprocess.Popen[str], seconds: float) -> Iterator[subprocess.Popen[str]]:
    """It is gone after this block; and killed if it lasts longer, so that its pipes end."""
    timer = threading.Timer(seconds, process.kill)
    with process:
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def interrupted(process: subprocess.Popen[str]) -> Ran:
    """Interrupt a process and return how it ended."""
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=20)
    return Ran(process.returncode, stdout, stderr)
