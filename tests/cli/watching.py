"""``recall-livekit watch`` in a process of its own, and what it says."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from recall_livekit.watcher.endpoint import WEBHOOK_PATH

from .terminal import COMMAND


class Watching:
    """It runs within this block. Its log is read as it comes."""

    def __init__(self, *args: str, at: Path | str, environment: Mapping[str, str]) -> None:
        url = at if isinstance(at, str) else f"sqlite:///{at}"
        self.lines: list[str] = []
        self._more = threading.Condition()
        self.process = subprocess.Popen(
            [*COMMAND, "watch", "--url", url, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._more.notify_all()

    def until(self, text: str, seconds: float = 20.0) -> str:
        """Wait until a line with this text was said; return it."""
        deadline = time.monotonic() + seconds
        with self._more:
            while not (found := [line for line in self.lines if text in line]):
                left = deadline - time.monotonic()
                assert left > 0, f"{text!r} is not in {self.log}"
                assert self.process.poll() is None, f"it ended: {self.log}"
                self._more.wait(min(left, 0.2))
        return found[0]

    def listening(self) -> str:
        """Wait until it answers HTTP; return where."""
        line = self.until("webhooks at ")
        return line.partition("webhooks at ")[2].strip().removesuffix(WEBHOOK_PATH)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Tell it to leave; return its exit code, and how many seconds it took."""
        began = time.monotonic()
        self.process.send_signal(how)
        code = self.process.wait(20)
        took = time.monotonic() - began
        self._reader.join(10)
        return code, took

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert "Traceback" not in self.log, self.log
