"""A server that the command itself began."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from .terminal import COMMAND, piped


class Serving:
    """``recall-livekit serve`` in a process of its own, on a free port."""

    def __init__(self, directory: Path, *args: str) -> None:
        store = ["--store", f"sqlite:///{directory}"]
        self.process = subprocess.Popen(
            [*COMMAND, "serve", *store, "--listen", "127.0.0.1:0", *args],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._listening()

    def _listening(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            message = str(json.loads(line)["message"])
            if message.startswith("listening at "):
                return message.removeprefix("listening at ")
        raise AssertionError("it ended")

    def end(self) -> int:
        """Tell it to leave; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.end() == 0


def made_key(directory: Path, role: str) -> str:
    store = f"sqlite:///{directory}"
    ran = piped("key", "create", "--name", "a test", "--role", role, "--store", store)
    assert ran.code == 0, ran.stderr
    return ran.stdout.strip()
