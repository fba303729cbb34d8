"""What the demo runs: a livekit-server, and two workers that can be killed and come back."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from recovery.process import python

from recall_livekit.testing.leash import kill, leashed, started
from recall_livekit.testing.livekit_server import LiveKitServer

from .server import livekit_server

__all__ = ["House", "Mode", "house", "together"]

Mode = Literal["alone", "recall"]
WORKERS = ("worker 1", "worker 2")
START_S = 40.0
"""The longest that a worker may take to load everything."""


class House:
    """Workers are known by their names: "worker 1" and "worker 2"."""

    def __init__(self, directory: Path, livekit: LiveKitServer, stack: AsyncExitStack) -> None:
        self.livekit = livekit
        self.records = f"sqlite:///{quote(str(directory / 'records'))}"
        self._directory = directory
        self._stack = stack
        self._workers: dict[str, Process] = {}
        self._pids: dict[str, int] = {}
        self._former: set[Process] = set()
        self._starts = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers' main processes, by number."""
        return tuple(self._pids[name] for name in sorted(self._pids))

    async def staff(self, mode: Mode) -> None:
        """Start two workers; they can take calls when it returns, beside those that can already."""
        self._former.update(self._workers.values())
        await together(*(self.start(name, mode) for name in WORKERS))

    async def dismiss_former(self) -> None:
        """End the workers that others replaced."""
        while self._former:
            worker = self._former.pop()
            kill(worker)
            await worker.wait()

    async def start(self, name: str, mode: Mode) -> None:
        """Start one worker; it can take calls when it returns."""
        self._starts += 1
        sign = self._directory / f"ready-{self._starts}"
        environment = python(
            MODE=mode,
            NAME=name,
            SIGN=str(sign),
            RECALL_URL=self.records,
            **self.livekit.environment,
        )
        command = (sys.executable, "-m", "livekit_demo.worker", "start")
        log = self._directory / f"worker-{self._starts}.log"
        worker = await self._stack.enter_async_context(
            leashed(*command, log=log, env=environment, cwd=self._directory)
        )
        self._workers[name] = worker

        async def ready() -> bool:
            return sign.exists() and bool(sign.read_text())

        await started(worker, ready, log, within=START_S)
        self._pids[name] = int(sign.read_text())

    def kill(self, name: str) -> None:
        """SIGKILL for a worker and all its processes."""
        kill(self._workers[name])


@asynccontextmanager
async def house(directory: Path) -> AsyncIterator[House]:
    """Run a livekit-server and, later, workers; all are gone at the end."""
    async with livekit_server(directory) as livekit, AsyncExitStack() as stack:
        yield House(directory, livekit, stack)


async def together(*work: Coroutine[object, object, None]) -> None:
    """Do all of it at once; the first failure ends the rest, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
