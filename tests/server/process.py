"""A server process of a test's own that can be killed; it dies with the test.

``python -m tests.server.process DIRECTORY PORT`` serves, and tells its address on stdout. All it
logs goes to stderr, as JSON.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

ROOT = Path(__file__).parents[2]


class ServerProcess:
    """One server process that answers."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url
        self.log = ""

    async def end(self, number: signal.Signals) -> int:
        """Send the signal, read its log, and return how it ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)
        with anyio.fail_after(20):
            _, log = await self._process.communicate()
        self.log = log.decode()
        assert self._process.returncode is not None
        return self._process.returncode


@asynccontextmanager
async def server_process(directory: Path, port: int = 0) -> AsyncIterator[ServerProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "tests.server.process", str(directory), str(port)),
        cwd=ROOT,
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    try:
        with anyio.fail_after(30):
            url = (await process.stdout.readline()).decode().strip()
        yield ServerProcess(process, url)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
                await process.communicate()


def main(directory: str, port: str) -> None:
    from recall_livekit.server.logs import log_as_json
    from recall_livekit.server.options import ServeOptions
    from recall_livekit.server.serve import Listening, run

    def tell(listening: Listening) -> None:
        print(listening.url, flush=True)

    log_as_json("DEBUG")
    options = ServeOptions(store_url=f"sqlite:///{directory}", port=int(port), drain_wait=2.0)
    run(options, listening=tell)


if __name__ == "__main__":
    from tests.crash.nursery import die_with_parent

    die_with_parent()
    main(*sys.argv[1:])
