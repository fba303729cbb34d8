"""A warm interpreter that forks a worker in milliseconds, to be killed.

A nursery is a process of its own (``python -m tests.crash SCRIPT``): one thread, no event
loop, no open store. Its children open their own. `run` starts one from a test.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["Body", "Child", "Tell", "die_with_parent", "raise_child", "run"]

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
"""Seconds that a child may take for one step before the nursery fails."""
PR_SET_PDEATHSIG = 1

Tell = Callable[..., None]
Body = Callable[[Tell], Awaitable[None]]


def run(script: str, *arguments: object, seconds: float) -> dict[str, Any]:
    """Run a nursery and return its summary. Nothing of it is left, however it ends."""
    command = [sys.executable, "-W", "error", "-m", "tests.crash", script]
    command += map(str, arguments)
    nursery = subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = nursery.communicate(timeout=seconds)
    except BaseException:
        os.killpg(nursery.pid, signal.SIGKILL)
        nursery.communicate()
        raise
    assert nursery.returncode == 0, f"{' '.join(command)}\n{err[-4000:]}"
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return summary


class Child:
    """A forked process, and what it has told so far."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.told: list[dict[str, Any]] = []
        self.status: int | None = None
        self._pipe = pipe
        self._rest = b""

    def values(self, key: str) -> list[Any]:
        return [line[key] for line in self.told if key in line]

    def wait_for(self, key: str, seconds: float = PATIENCE) -> Any:
        """Return the first value that it tells under `key`."""
        deadline = time.monotonic() + seconds
        while not self.values(key):
            assert self._read(deadline), f"ended without telling {key}: {self.told[-3:]}"
        return self.values(key)[0]

    def listen(self, seconds: float) -> None:
        """Read what it tells for so long, or until it ends."""
        deadline = time.monotonic() + seconds
        with suppress(TimeoutError):
            while self._read(deadline):
                pass

    def signal(self, number: int) -> None:
        if self.status is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and read all that it had told."""
        self.signal(signal.SIGKILL)
        self.end()

    def end(self, seconds: float = PATIENCE) -> int:
        """Wait for its end; return the exit code, or minus the signal."""
        deadline = time.monotonic() + seconds
        while self.status is None and self._read(deadline):
            pass
        if self.status is None:
            _, status = os.waitpid(self.pid, 0)
            self.status = os.waitstatus_to_exitcode(status)
            os.close(self._pipe)
        return self.status

    def stopped(self, seconds: float = PATIENCE) -> None:
        """Return once it has stopped itself."""
        deadline = time.monotonic() + seconds
        while os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)[0] == 0:
            assert time.monotonic() < deadline, f"it did not stop: {self.told[-3:]}"
            self.listen(0.01)

    def _read(self, deadline: float) -> bool:
        """Take in what it tells next; False at its end."""
        if not select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"{self.pid} tells nothing more; last: {self.told[-3:]}")
        data = os.read(self._pipe, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.told += map(json.loads, lines)
        return bool(data)


def _born(body: Body) -> Child:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        _live(body, writing)
    os.close(writing)
    return Child(pid, reading)


@contextmanager
def raise_child(body: Body) -> Iterator[Child]:
    """Fork a child that runs `body`; it is dead afterwards."""
    child = _born(body)
    try:
        yield child
    finally:
        child.kill()


def die_with_parent() -> None:
    """Have the system kill this process when the thread that started it is gone (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _live(body: Body, pipe: int) -> None:
    code = 1
    try:
        die_with_parent()

        def tell(**what: object) -> None:
            os.write(pipe, json.dumps(what).encode() + b"\n")

        asyncio.run(_awaited(body, tell))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


async def _awaited(body: Body, tell: Tell) -> None:
    await body(tell)
