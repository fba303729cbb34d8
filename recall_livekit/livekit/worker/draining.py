"""A worker that leaves gives each of its live calls to another worker, without their callers
noticing; what nobody takes it keeps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import anyio
from livekit.agents.job import RunningJobInfo

from ...errors import RecallError, RoomsUnavailable
from ...rooms.livekit_rooms import Room, Unanswered, Unsupported
from ...rooms.orders import HAND_OVER, Orders, read_orders
from ...rooms.protocol import Rooms, is_open
from ..succession.handover import BOUND

__all__ = ["Draining", "LiveJob"]

logger = logging.getLogger("recall_livekit")

ASK_SECONDS = 0.5
"""How long an agent of this worker may take to say how it stands."""
TELL_SECONDS = 0.5
"""How long a standby may take to learn that it is the successor."""
JOIN_SECONDS = 3.0
"""How long a successor may take to be in the room and ready: 0.4 s, or a process's start."""
LOOK_SECONDS = 0.05
JOBS_SECONDS = 0.2
"""How often is looked for jobs that began or ended meanwhile."""
FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0
"""Between two tries to hand one call over (seconds); each pause is twice the one before."""
_SUCCESSOR = Orders(resume=True, standby="joined", handover=True)


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that runs on this worker, and the agent that it is in its room."""

    id: str
    identity: str
    room: Room
    agent_name: str
    metadata: str
    dispatch: str
    orders: Orders

    @classmethod
    def of(cls, running: RunningJobInfo) -> LiveJob:
        """Return what there is to know of a running job."""
        job = running.job
        return cls(
            id=job.id,
            identity=running.accept_arguments.identity,
            room=Room(job.room.name, job.room.sid, float(job.room.creation_time)),
            agent_name=job.agent_name,
            metadata=job.metadata,
            dispatch=job.dispatch_id,
            orders=read_orders(job.attributes, job.metadata),
        )


class Draining:
    """One worker's leaving. Many calls are handed over at once, but one successor is called at a
    time: LiveKit drops bursts of dispatches in silence."""

    def __init__(self, rooms: Rooms, jobs: Callable[[], Sequence[LiveJob]]) -> None:
        """`jobs` returns those that still run here."""
        self._rooms = rooms
        self._jobs = jobs
        self._calling = anyio.Lock()
        self._given = 0

    async def run(self) -> None:
        """Hand over until cancelled: a job that was accepted before may begin only now."""
        begun: set[str] = set()
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    for job in self._jobs():
                        if job.id not in begun:
                            begun.add(job.id)
                            tasks.start_soon(self._give_up, job)
                    await anyio.sleep(JOBS_SECONDS)
        finally:
            logger.info("%d calls were handed over to other workers", self._given)

    # --- one job ------------------------------------------------------------------------------

    async def _give_up(self, job: LiveJob) -> None:
        """Try until the job needs nothing more from us; a fault of ours ends no other's turn."""
        pause = FIRST_PAUSE
        while any(one.id == job.id for one in self._jobs()):
            try:
                if await self._tried(job):
                    return
            except RecallError as error:
                logger.warning("job %s: not handed over yet: %s", job.id, error)
            except Exception:
                logger.exception("job %s: handing its call over failed", job.id)
            await anyio.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _tried(self, job: LiveJob) -> bool:
        """Whether there is nothing more to do for this job."""
        pulse = await self._rooms.ask(job.room.name, job.identity, seconds=ASK_SECONDS)
        if pulse is None:
            outside = job.orders.standby is not None and not await self._is_inside(job)
            return outside and await self._send_away(job)
        if pulse.waits:
            return await self._send_away(job)
        if pulse.state == "":
            logger.info("job %s is not a RecallAgent's: it is waited for", job.id)
        if pulse.state in ("", "closed"):
            return True
        return pulse.state == "holding" and await self._handed_over(job)

    async def _is_inside(self, job: LiveJob) -> bool:
        """Whether it is in its room: once a standby, it may have the call by now."""
        members = await self._rooms.members(job.room.name)
        return any(member.identity == job.identity for member in members)

    async def _send_away(self, job: LiveJob) -> bool:
        """A standby of this worker's is no use to anybody."""
        logger.info("job %s is a standby: it ends", job.id)
        await self._rooms.evict(job.room.name, job.identity)  # LiveKit alone takes seconds
        await self._rooms.withdraw(job.room.name, job.dispatch)
        return True

    async def _handed_over(self, job: LiveJob) -> bool:
        successor = await self._waiting(job) or await self._called(job)
        if successor is None:
            logger.warning("job %s: no other worker takes its call; it goes on here", job.id)
            return False
        await self._clear_way(job)
        began = time.monotonic()
        answer = await self._rooms.perform(job.room.name, job.identity, HAND_OVER, seconds=BOUND)
        if answer != "handed over":
            logger.warning("job %s: its call was kept; it is tried again", job.id)
            return False
        self._given += 1
        logger.info("job %s: its call was handed over in %.1f s", job.id, time.monotonic() - began)
        return True

    # --- who takes it -------------------------------------------------------------------------

    async def _waiting(self, job: LiveJob) -> str | None:
        """Return a standby of another worker's that is in the room already, if there is one."""
        return await self._told(job, besides=())

    async def _called(self, job: LiveJob) -> str | None:
        """Call one more agent into the room, and return it once it waits there. This worker is
        full, so LiveKit gives it to another."""
        async with self._calling:
            if not await is_open(self._rooms, job.room.name, job.room.sid):
                return None
            before = {member.identity for member in await self._rooms.members(job.room.name)}
            dispatch = await self._rooms.dispatch(
                job.room, job.agent_name, metadata=job.metadata, orders=_SUCCESSOR
            )
            with anyio.move_on_after(JOIN_SECONDS):
                while True:
                    if (found := await self._told(job, besides=before)) is not None:
                        return found
                    await anyio.sleep(LOOK_SECONDS)
        await self._rooms.withdraw(job.room.name, dispatch)
        return None

    async def _told(self, job: LiveJob, *, besides: Collection[str]) -> str | None:
        """Tell the standbys in the room, but for these and this worker's own, that the call will
        be handed over; return the first that is ready for it."""
        mine = {one.identity for one in self._jobs()}
        for member in await self._rooms.members(job.room.name):
            waits = member.kind == "agent" and member.standby == "joined"
            if not waits or member.identity in mine or member.identity in besides:
                continue
            if await self._tell(job, member.identity):
                return member.identity
        return None

    async def _tell(self, job: LiveJob, standby: str) -> bool:
        try:
            answer = await self._rooms.perform(
                job.room.name, standby, HAND_OVER, seconds=TELL_SECONDS
            )
        except (Unanswered, Unsupported):
            return False
        return answer == "successor"

    async def _clear_way(self, job: LiveJob) -> None:
        """A standby outside of the room cannot be told, and would be faster now and then."""
        try:
            for one in await self._rooms.dispatches(job.room.name):
                if one.orders.standby == "following" and one.id != job.dispatch:
                    await self._rooms.withdraw(job.room.name, one.id)
        except RoomsUnavailable as error:
            logger.debug("job %s: its standby was not sent away: %s", job.id, error)
