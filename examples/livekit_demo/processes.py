"""Processes that end with the demo, however it ends, and take all that they started with them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from recovery.process import DemoFailed

__all__ = ["EXAMPLES", "Process", "eventually", "python", "running", "together"]

EXAMPLES = Path(__file__).resolve().parents[1]
POLL_S = 0.02
START_S = 40.0

# Whatever ends first, the command or the demo (whose death closes the pipe on standard input),
# ends the whole process group: even a demo that is killed itself leaves nothing behind.
LEASH = '("$@"; kill -9 0) & read -r _; kill -9 0'


class Process:
    """A command and all that it started."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    async def ready(self, check: Callable[[], Awaitable[bool]]) -> None:
        """Return when `check` says so.

        Raises:
            DemoFailed: The process ended, or took longer than `START_S`; with its last words.
        """

        async def up() -> bool:
            if self._process.returncode is not None:
                raise DemoFailed(f"{self._log.name}: it ended at once\n{self._last_lines()}")
            return await check()

        try:
            await eventually(up, within=START_S)
        except TimeoutError:
            told = f"{self._log.name}: not ready after {START_S:.0f} s"
            raise DemoFailed(f"{told}\n{self._last_lines()}") from None

    def kill(self) -> None:
        """SIGKILL for all of them at once: none gets a chance to say or write anything more."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Return when it is dead."""
        await self._process.wait()

    def _last_lines(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-12:])


@asynccontextmanager
async def running(
    *command: str, log: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """Run a command, and all that it starts, within this block and no longer."""
    with log.open("ab") as output:
        started = await asyncio.create_subprocess_exec(
            *("sh", "-c", LEASH, "leash", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env=env,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its processes
        )
    process = Process(started, log)
    try:
        yield process
    finally:
        process.kill()
        await process.gone()


def python(**environment: str) -> dict[str, str]:
    """An environment in which a process of ours finds the modules of the examples."""
    search = os.pathsep.join([str(EXAMPLES), *filter(None, sys.path)])
    return {**os.environ, **environment, "PYTHONPATH": search}


async def eventually(check: Callable[[], Awaitable[bool]], *, within: float) -> None:
    """Return when `check` is true, for what gives no event to wait for.

    Raises:
        TimeoutError: It is not, `within` seconds from now.
    """
    async with asyncio.timeout(within):
        while True:
            if await check():
                return
            await asyncio.sleep(POLL_S)


async def together(*work: Coroutine[object, object, None]) -> None:
    """Do all of it at once; the first failure ends the rest, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
