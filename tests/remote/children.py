"""Processes of a test's own that can be killed and stopped; they die with it.

``python -m tests.remote.children serve DIRECTORY PORT`` or ``... hold URL CALL RATE``. Each line
on stdout is a JSON object.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

ROOT = Path(__file__).parents[2]


class Child:
    """A child process, and what it has told so far."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.told: list[dict[str, Any]] = []

    async def tells(self, key: str, seconds: float = 30.0) -> Any:
        """Return the next value that it tells under `key`."""
        assert self._process.stdout is not None
        with anyio.fail_after(seconds):
            while line := await self._process.stdout.readline():
                self.told.append(json.loads(line))
                if key in self.told[-1]:
                    return self.told[-1][key]
        raise AssertionError(f"ended without telling {key}: {self.told[-3:]}")

    async def listen(self, seconds: float) -> None:
        """Take in what it tells for so long, or until it ends."""
        with suppress(TimeoutError, AssertionError):
            await self.tells("nothing is told under this", seconds)

    def values(self, key: str) -> list[Any]:
        return [line[key] for line in self.told if key in line]

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, seconds: float = 10.0) -> None:
        """Return once it has ended."""
        with anyio.fail_after(seconds):
            await self._process.wait()

    async def kill(self) -> None:
        """Kill it, and read all that it had told."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self.listen(5)
        await self._process.wait()


@asynccontextmanager
async def child(*arguments: object) -> AsyncIterator[Child]:
    """Start one; it is dead afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.remote.children", *map(str, arguments), cwd=ROOT, stdout=PIPE
    )
    started = Child(process)
    try:
        yield started
    finally:
        with anyio.CancelScope(shield=True):
            await started.kill()


@asynccontextmanager
async def server(directory: Path, port: int = 0) -> AsyncIterator[tuple[Child, str]]:
    """A server process over the records in `directory`, and its address."""
    async with child("serve", directory, port) as started:
        yield started, f"http://127.0.0.1:{await started.tells('port')}"


# --- in the child ---------------------------------------------------------------------------------


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


def serve(directory: str, port: str) -> None:
    """Serve the records in a directory, with whatever keys were made for them."""
    from recall_livekit.server.options import ServeOptions
    from recall_livekit.server.serve import run

    options = ServeOptions(store_url=f"sqlite:///{directory}", port=int(port))
    run(options, listening=lambda server: tell(port=int(server.url.rsplit(":", 1)[1])))


async def hold(url: str, call_id: str, rate: str) -> None:
    """Hold a call and record on it at a steady rate; tell what is durable."""
    from recall_livekit import Recall

    live = Recall.open(url).resume(call_id)
    live.subscribe(lambda state: tell(state=state.value))
    async with live as call:
        tell(held=call.epoch)
        number = 0
        while True:
            number += 1
            call.record_turn("user" if number % 2 else "assistant", f"{call.epoch}.{number}")
            if await call.flush(30):
                tell(acked=f"{call.epoch}.{number}")
            await asyncio.sleep(1 / float(rate))


if __name__ == "__main__":
    from tests.crash.nursery import die_with_parent

    die_with_parent()
    role, *arguments = sys.argv[1:]
    if role == "serve":
        serve(*arguments)
    else:
        asyncio.run(hold(*arguments))
