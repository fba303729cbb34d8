"""A worker as a process group of its own, which a test can kill, freeze or stop."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recall_livekit.rooms.orders import StandbyKind
from recall_livekit.testing.leash import eventually, leashed, started
from recall_livekit.testing.livekit_server import LiveKitServer

Mode = Literal["livekit", "recall", "fallback"]
ROOT = Path(__file__).parents[2]
AGENT = "support"
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a worker does, and what the watcher inside it is told, if it has one.

    A watcher gives a `standby` of this kind to the rooms whose names begin with "standby". One
    that `serves` brings agents into those that begin with "served", though nobody asked for one.
    """

    mode: Mode = "recall"
    agent: str = AGENT
    idle: int = 2
    watcher: bool = False
    serves: bool = False
    standby: StandbyKind | None = None
    fallback: str | None = None
    drain: Literal["handover", "wait"] = "handover"


class Worker:
    """`start` it, and it is a process; `end` it, and nothing of it is left."""

    def __init__(
        self, name: str, part: Part, server: LiveKitServer, directory: Path, records: str
    ) -> None:
        self.name = name
        self.part = part
        self.records = records
        """The address at which this worker reaches the records; a test may put a wire there."""
        self._server = server
        self._directory = directory
        self._stack = AsyncExitStack()
        self._process: asyncio.subprocess.Process | None = None
        self._leaving = False

    @property
    def log(self) -> Path:
        return self._directory / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The main process."""
        return int((self._signs / "registered").read_text())

    @property
    def lives(self) -> bool:
        """Whether its main process is there and not on its way out."""
        registered = (self._signs / "registered").exists()
        return registered and not self._leaving and _is_there(self.pid)

    async def start(self) -> None:
        """Returns when it is registered and has its idle processes."""
        await self.end()
        async with AsyncExitStack() as stack:
            command = (sys.executable, str(WORKER), "start")
            worker = leashed(*command, log=self.log, env=self._environment(), loose=True)
            self._process = await stack.enter_async_context(worker)
            await started(self._process, self.ready, self.log)
            self._stack = stack.pop_all()

    async def end(self) -> None:
        """Ends it at once, with all its jobs."""
        await self._stack.aclose()
        self._process, self._leaving = None, False
        for sign in (self._signs / "registered", *(self._signs / "warm").glob("[!.]*")):
            sign.unlink(missing_ok=True)

    async def ready(self) -> bool:
        """Whether it is registered, and all its idle processes are warm."""
        return (self._signs / "registered").exists() and len(self._warm()) >= self.part.idle

    @contextmanager
    def full(self) -> Iterator[None]:
        """It takes no job meanwhile, as one with too much to do."""
        sign = self._signs / "full"
        sign.touch()
        try:
            yield
        finally:
            sign.unlink(missing_ok=True)

    def idle_process(self) -> int:
        """A warm process that waits for a job."""
        return self._warm()[0]

    def _warm(self) -> list[int]:
        signs = (self._signs / "warm").glob("[!.]*")
        return [int(sign.name) for sign in signs if _is_there(int(sign.name))]

    def kill(self) -> None:
        """Kills the main process; its jobs are its children and learn of it."""
        os.kill(self.pid, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kills it with all its jobs, as the machine or the container dies."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """What a deploy does to it."""
        self._leaving = True
        os.kill(self.pid, signal.SIGTERM)

    async def ended(self, *, within: float) -> None:
        """Returns when its main process is gone."""
        pid = self.pid

        async def gone() -> bool:
            return not _is_there(pid)

        await eventually(gone, within=within)

    @property
    def _signs(self) -> Path:
        return self._directory / "workers" / self.name

    def _environment(self) -> dict[str, str]:
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {
            "MODE": self.part.mode,
            "AGENT_NAME": self.part.agent,
            "IDLE_PROCESSES": str(self.part.idle),
            "WATCHER": "yes" if self.part.watcher else "",
            "SERVES": "yes" if self.part.serves else "",
            "STANDBY": self.part.standby or "",
            "FALLBACK": self.part.fallback or "",
            "DRAIN": self.part.drain,
            "WORKER_NAME": self.name,
            "STAGE_DIR": str(self._directory),
            "RECALL_SPOOL": str(self._directory / "spool"),
            "RECALL_URL": self.records,
            "PYTHONPATH": os.pathsep.join(path),
            **self._server.environment,
        }


@dataclass(frozen=True, slots=True)
class Job:
    """One agent in a room: its participant identity, the process that is it, and its worker."""

    identity: str
    pid: int
    worker: str

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def lives(self) -> bool:
        return _is_there(self.pid)

    async def ended(self, *, within: float) -> None:
        """Returns when the process is gone."""

        async def gone() -> bool:
            return not self.lives

        await eventually(gone, within=within)


def _is_there(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody waited for does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
