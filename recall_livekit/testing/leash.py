"""Processes that cannot outlive whoever started them, and what one waits for with them."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

__all__ = ["NotStarted", "eventually", "free_ports", "kill", "leashed", "started"]

POLL_S = 0.02
STARTUP_S = 30.0
LAST_LINES = 20

PORTS = range(20_000, 30_000)
"""Below those that the system gives to connections: one of these would have the port before the
server that it is meant for, or while that server is away."""

# Whatever ends first, the command or its owner (whose death closes the pipe on standard input),
# ends the whole process group: even an owner that is killed itself leaves nothing behind.
LEASH = '("$@"; kill -9 0) & read -r _; kill -9 0'
# The same for a command whose own death its children are to outlive for a while.
LOOSE_LEASH = '"$@" & read -r _; kill -9 0'

T = TypeVar("T")


class NotStarted(RuntimeError):
    """A process ended, or took too long, before it was ready; the message has its last words."""


@asynccontextmanager
async def leashed(
    *command: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    loose: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command, and all that it starts, within this block and no longer.

    All of it is one process group, the given process's, which a Ctrl-C at the terminal does not
    reach. What it says is added to `log`. `loose`: what it started may outlive it, in the block.
    """
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", LOOSE_LEASH if loose else LEASH, "leash", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)
        await process.wait()


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command and all that it started (SIGKILL), if it is not dead already."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def started(
    process: asyncio.subprocess.Process,
    ready: Callable[[], Awaitable[bool]],
    log: Path,
    *,
    within: float = STARTUP_S,
) -> None:
    """Return when `ready` says so.

    Raises:
        NotStarted: The process ended, or it is not ready after `within` seconds.
    """

    async def up() -> bool:
        if process.returncode is not None:
            raise NotStarted(f"{log.name}: it ended at once\n{_last_lines(log)}")
        return await ready()

    try:
        await eventually(up, within=within)
    except TimeoutError:
        told = f"{log.name}: not ready after {within:.0f} s"
        raise NotStarted(f"{told}\n{_last_lines(log)}") from None


async def eventually(check: Callable[[], Awaitable[T | None]], *, within: float) -> T:
    """Return the first true answer of `check`, for what gives no event to wait for: files, ports.

    Raises:
        TimeoutError: There is none after `within` seconds.
    """
    async with asyncio.timeout(within):
        while True:
            if found := await check():
                return found
            await asyncio.sleep(POLL_S)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on; all different.

    Raises:
        NotStarted: There are not so many.
    """
    chosen = random.SystemRandom().sample(PORTS, len(PORTS))  # others choose at the same time
    free = list(islice(filter(_is_free, chosen), count))
    if len(free) < count:
        raise NotStarted(f"of the ports {PORTS.start} to {PORTS.stop - 1} not {count} are free")
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
