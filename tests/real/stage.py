"""A livekit-server with workers on it, and what a test does to them."""

from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from livekit import api

from recall_livekit.rooms.orders import STANDBY
from recall_livekit.testing.leash import eventually
from recall_livekit.testing.livekit_server import LiveKitServer

from .caller import Caller
from .workers import AGENT, Job, Part, Worker

WARM_S = 30.0


class Stage:
    """`async with Stage(directory, Part(), Part()) as stage`: server and workers are ready inside.

    `directory` takes the logs, the records and the workers' signs. The records are embedded, or
    behind a Recall server if their address is given.
    """

    def __init__(
        self,
        directory: Path,
        *parts: Part,
        records: str | None = None,
        webhooks: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.records = records or f"sqlite:///{directory / 'records'}"
        self.server = LiveKitServer(directory, webhooks=webhooks, departure_timeout=8)
        self.workers = [
            Worker(f"worker-{number}", part, self.server, directory, self.records)
            for number, part in enumerate(parts, 1)
        ]
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.server)
            self._api = await stack.enter_async_context(self.server.api())
            for worker in self.workers:
                stack.push_async_callback(worker.end)
            await self.whole()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # --- the workers --------------------------------------------------------------------------

    async def whole(self) -> None:
        """Starts what a test killed or stopped; returns when all have their idle processes."""
        for worker in self.workers:
            if not worker.lives:
                await worker.start()
        await self.warmed()

    async def warmed(self) -> None:
        """Returns when all workers have all their idle processes again."""
        for worker in self.workers:
            await eventually(worker.ready, within=WARM_S)

    def worker_of(self, job: Job) -> Worker:
        return next(worker for worker in self.workers if worker.name == job.worker)

    def other_than(self, worker: Worker) -> Worker:
        return next(one for one in self.workers if one is not worker)

    # --- the rooms ----------------------------------------------------------------------------

    def caller(self, room: str, *, silent: bool = False, asks_for: str | None = None) -> Caller:
        """Somebody to come into the room; `silent`: with no microphone, and with no ear. The
        caller's token `asks_for` an agent, which LiveKit hears only if the room is new."""
        token = self.server.token(room, "caller", asks_for)
        return Caller(self.server.url, token, silent=silent)

    async def open(self, room: str) -> None:
        """Makes a room in which nobody is."""
        await self._api.room.create_room(api.CreateRoomRequest(name=room))

    async def dispatch(self, room: str, agent: str = AGENT) -> None:
        """Asks for one more agent in the room."""
        request = api.CreateAgentDispatchRequest(agent_name=agent, room=room)
        await self._api.agent_dispatch.create_dispatch(request)

    async def present(self, room: str) -> set[str]:
        """The identities of all who are in the room; empty if there is no such room."""
        return {one.identity for one in await self._inside(room)}

    async def agents(self, room: str) -> set[str]:
        """The identities of the agents in the room that are no standby."""
        inside = await self._inside(room)
        agents = (one for one in inside if one.kind == api.ParticipantInfo.Kind.AGENT)
        return {one.identity for one in agents if not one.attributes.get(STANDBY)}

    async def _inside(self, room: str) -> Sequence[api.ParticipantInfo]:
        request = api.ListParticipantsRequest(room=room)
        try:
            return (await self._api.room.list_participants(request)).participants
        except api.TwirpError:
            return ()

    async def rooms(self) -> set[str]:
        """The names of the rooms that are open."""
        listed = await self._api.room.list_rooms(api.ListRoomsRequest())
        return {room.name for room in listed.rooms}

    async def evict(self, room: str, identity: str) -> None:
        """Throws a participant out."""
        who = api.RoomParticipantIdentity(room=room, identity=identity)
        await self._api.room.remove_participant(who)

    async def close(self, room: str) -> None:
        """Ends the room and the jobs in it, if it is there."""
        with suppress(api.TwirpError):
            await self._api.room.delete_room(api.DeleteRoomRequest(room=room))

    # --- the jobs -----------------------------------------------------------------------------

    def jobs(self, room: str) -> list[Job]:
        """Every job that was started for the room, dead or alive, oldest first."""
        signs = (self.directory / "jobs" / room).glob("[!.]*")
        return [self._job(sign) for sign in sorted(signs, key=lambda one: one.stat().st_mtime_ns)]

    def living(self, room: str) -> list[Job]:
        """The jobs of the room whose processes run: its agent, and its standby."""
        return [job for job in self.jobs(room) if job.lives]

    async def job(
        self,
        room: str,
        *,
        besides: Collection[Job] = (),
        worker: str | None = None,
        within: float = 5.0,
    ) -> Job:
        """The next job that serves the room, one that is not among those known already; of this
        worker, or of any."""

        async def newcomer() -> Job | None:
            jobs = (job for job in self.jobs(room) if worker in (None, job.worker))
            return next((job for job in jobs if job not in besides), None)

        return await eventually(newcomer, within=within)

    async def settled(self, room: str, job: Job, *, within: float = 2.0) -> None:
        """Returns when a standby has joined and says what it is, or after `within` seconds: it
        need not join."""

        async def joined() -> bool:
            inside = await self.present(room)
            return job.identity in inside and job.identity not in await self.agents(room)

        with suppress(TimeoutError):
            await eventually(joined, within=within)

    async def left(self, room: str, identity: str, *, within: float = 5.0) -> None:
        """Returns when this participant is not in the room."""

        async def gone() -> bool:
            return identity not in await self.present(room)

        await eventually(gone, within=within)

    def _job(self, sign: Path) -> Job:
        pid, worker = sign.read_text().split()
        return Job(sign.name, int(pid), worker)
