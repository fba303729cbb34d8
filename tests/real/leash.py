"""Processes that cannot outlive the test that started them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

POLL_S = 0.02
STARTUP_S = 30.0

# Whatever ends first, the command or its owner (whose death closes the pipe on standard input),
# ends the whole process group: even a test that is killed itself leaves nothing behind.
LEASH = '("$@"; kill -9 0) & read -r _; kill -9 0'
# The same for a command whose own death its children are to outlive for a while.
LOOSE_LEASH = '"$@" & read -r _; kill -9 0'

T = TypeVar("T")


@asynccontextmanager
async def leashed(
    *command: str, log: Path, env: Mapping[str, str] | None = None, loose: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a command, and all that it starts, within this block and no longer."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", LOOSE_LEASH if loose else LEASH, "leash", *command),
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=env,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def started(
    process: asyncio.subprocess.Process, ready: Callable[[], Awaitable[bool]], log: Path
) -> None:
    """Returns when `ready` says so. Raises RuntimeError with the log if the process fails."""

    async def up() -> bool:
        if process.returncode is not None:
            raise RuntimeError(f"{log.name}: it ended at once\n{_tail(log)}")
        return await ready()

    try:
        await eventually(up, within=STARTUP_S)
    except TimeoutError:
        raise RuntimeError(f"{log.name}: not ready after {STARTUP_S} s\n{_tail(log)}") from None


async def eventually(check: Callable[[], Awaitable[T | None]], *, within: float) -> T:
    """The first true answer of `check`, for what gives no event to wait for: files, ports."""
    async with asyncio.timeout(within):
        while True:
            if found := await check():
                return found
            await asyncio.sleep(POLL_S)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
