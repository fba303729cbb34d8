"""A Recall server as a process, for as long as a test needs it; it can be killed and come back."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from recall_livekit.testing.leash import free_ports, leashed, started
from recall_livekit.testing.livekit_server import answers

from ..cli.terminal import COMMAND


class RecordsServer:
    """`async with RecordsServer(directory) as records`: it answers at `records.url` inside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self._port,) = free_ports(1)
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def killed(self) -> None:
        """Kills it by SIGKILL, with all that it has open."""
        await self._stack.aclose()

    async def restarted(self) -> None:
        """Brings it back: another process, the same port and store."""
        await self._start()

    async def _start(self) -> None:
        log = self.directory / "records.log"
        command = (
            *(*COMMAND, "serve", "--store", f"sqlite:///{self.directory / 'records'}"),
            *("--listen", f"127.0.0.1:{self._port}"),
        )
        async with AsyncExitStack() as stack:
            process = await stack.enter_async_context(leashed(*command, log=log))
            await started(process, lambda: answers(self._port), log)
            self._stack = stack.pop_all()
