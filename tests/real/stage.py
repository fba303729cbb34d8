"""A livekit-server with a worker on it, and what a test does to them."""

import os
import signal
import sys
from collections.abc import Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from livekit import api

from .caller import Caller
from .leash import eventually, leashed, started
from .server import ROOT, LiveKitServer

Mode = Literal["livekit", "recall"]
AGENT = "support"
WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True, slots=True)
class Job:
    """One agent in a room: its participant identity, and the process that is it."""

    identity: str
    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Stage:
    """`async with Stage(directory, mode) as stage`: server and worker are ready inside.

    `idle` processes wait for jobs; `directory` takes the logs, the records and the worker's signs.
    The records are embedded, or behind a Recall server if their address is given.
    """

    def __init__(
        self, directory: Path, mode: Mode, *, idle: int = 2, records: str | None = None
    ) -> None:
        self.directory = directory
        self.mode: Mode = mode
        self.idle = idle
        self.records = records or f"sqlite:///{directory / 'records'}"
        self.server = LiveKitServer(directory)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self._api = await stack.enter_async_context(self.server.api())
            log = self.directory / "worker.log"
            worker = leashed(
                sys.executable, str(WORKER), "start", log=log, env=self._environment(), loose=True
            )
            process = await stack.enter_async_context(worker)
            await started(process, self._ready, log)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def caller(self, room: str) -> Caller:
        return Caller(self.server.url, self.server.token(room, "caller"))

    async def dispatch(self, room: str) -> None:
        """Asks for one more agent in the room."""
        request = api.CreateAgentDispatchRequest(agent_name=AGENT, room=room)
        await self._api.agent_dispatch.create_dispatch(request)

    def jobs(self, room: str) -> list[Job]:
        """Every job that was started for the room, dead or alive."""
        signs = (self.directory / "jobs" / room).glob("[!.]*")
        return [Job(sign.name, int(sign.read_text())) for sign in signs]

    async def job(self, room: str, *, besides: Collection[Job] = (), within: float = 5.0) -> Job:
        """The next job that serves the room, one that is not among those known already."""

        async def newcomer() -> Job | None:
            return next((job for job in self.jobs(room) if job not in besides), None)

        return await eventually(newcomer, within=within)

    async def settled(self, room: str, job: Job, *, within: float = 2.0) -> None:
        """Returns when a standby has joined, or after `within` seconds: it need not join."""

        async def joined() -> bool:
            return job.identity in await self.present(room)

        with suppress(TimeoutError):
            await eventually(joined, within=within)

    async def warmed(self, *, within: float = 20.0) -> None:
        """Returns when the worker has all its idle processes again."""
        await eventually(self._ready, within=within)

    def kill_worker(self) -> None:
        """Kill the worker's main process; its jobs are its children and learn of it."""
        os.kill(int((self.directory / "registered").read_text()), signal.SIGKILL)

    async def present(self, room: str) -> set[str]:
        """The identities of all who are in the room; empty if there is no such room."""
        try:
            inside = await self._api.room.list_participants(api.ListParticipantsRequest(room=room))
        except api.TwirpError:
            return set()
        return {one.identity for one in inside.participants}

    async def evict(self, room: str, identity: str) -> None:
        """Throws a participant out."""
        who = api.RoomParticipantIdentity(room=room, identity=identity)
        await self._api.room.remove_participant(who)

    async def close(self, room: str) -> None:
        """Ends the room and the jobs in it."""
        await self._api.room.delete_room(api.DeleteRoomRequest(room=room))

    async def _ready(self) -> bool:
        warm = list((self.directory / "warm").glob("[!.]*"))
        return (self.directory / "registered").exists() and len(warm) >= self.idle

    def _environment(self) -> dict[str, str]:
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {
            "MODE": self.mode,
            "AGENT_NAME": AGENT,
            "IDLE_PROCESSES": str(self.idle),
            "STAGE_DIR": str(self.directory),
            "LIVEKIT_URL": self.server.url,
            "LIVEKIT_API_KEY": self.server.key,
            "LIVEKIT_API_SECRET": self.server.secret,
            "RECALL_URL": self.records,
            "PYTHONPATH": os.pathsep.join(path),
        }
