"""A process as the demo sees it: a worker, or the server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import ClassVar, Self

from .timeline import COLUMNS
from .wire import Event

__all__ = ["DemoFailed", "Process", "Server", "Worker", "python", "workers"]

EXAMPLES = Path(__file__).resolve().parents[1]


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


def python(**environment: str) -> dict[str, str]:
    """An environment in which a process of ours finds the modules of the examples."""
    search = os.pathsep.join([str(EXAMPLES), *filter(None, sys.path)])
    return {**os.environ, **environment, "PYTHONPATH": search}


class Process:
    """One process; `number` is its column."""

    module: ClassVar[str]

    def __init__(
        self, number: int, process: asyncio.subprocess.Process, log: Path, name: str | None
    ) -> None:
        self.number = number
        self.pid = process.pid
        self.name = name or COLUMNS[number - 1]
        self.killed = False
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls,
        number: int,
        log: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Self:
        """Start it, beside its log. It ends with this process, whose end closes its input.

        Its `name` is that of its column, unless it shares the column with another.
        """
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", cls.module, *arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=output,
                cwd=log.parent,
                env=python(**(environment or {})),
                start_new_session=True,  # Ctrl-C is for the demo, which ends its processes
            )
        return cls(number, process, log, name)

    async def next(self) -> Event | None:
        """Return the next thing it tells, None once it is dead and everything was told.

        Raises:
            DemoFailed: It ended by a fault of its own.
        """
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line.endswith(b"\n"):
            return Event.of_line(line)
        if await self._process.wait() not in (0, -signal.SIGKILL):
            raise DemoFailed(f"{self.name} failed:\n{self._last_lines()}")
        return None

    def order(self, kind: str, **fields: object) -> None:
        """Tell it something; a dead one hears nothing."""
        assert self._process.stdin is not None
        self._process.stdin.write(Event(kind, time.monotonic(), fields).line())

    def kill(self) -> None:
        """SIGKILL: it gets no chance to say or to write anything more."""
        self.killed = True
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Return when it is dead."""
        await self._process.wait()

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


class Worker(Process):
    """One worker process."""

    module = "recovery.worker"


class Server(Process):
    """One server process."""

    module = "recovery.server"


@asynccontextmanager
async def workers(
    directory: Path, mode: str, url: str, call_id: str
) -> AsyncIterator[tuple[Worker, Worker]]:
    """Start two warm workers; whatever happens inside, both are gone at the end."""
    started: list[Worker] = []
    try:
        for number in (1, 2):
            log = directory / f"{mode}-worker-{number}.log"
            started.append(await Worker.start(number, log, mode, url, call_id))
        yield started[0], started[1]
    finally:
        for worker in started:
            worker.kill()
        for worker in started:
            await worker.gone()
