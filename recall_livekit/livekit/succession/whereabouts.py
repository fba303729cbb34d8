"""Where a standby waits: outside of the room, or in it, silent, with an ear for the caller."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from livekit import rtc
from livekit.agents import AutoSubscribe, JobContext

from ...errors import InvalidSettings, RoomsUnavailable
from ...rooms.livekit_rooms import LiveKitRooms
from ...rooms.orders import STANDBY, StandbyKind
from ..sound.ring import CallerEar, is_caller

__all__ = ["Gone", "Inside", "Outside", "Whereabouts"]

logger = logging.getLogger("recall_livekit")

Gone = Callable[[str], None]
"""Told, with the reason, that there is nothing to wait for any more."""

TOKEN_SECONDS = 50 * 60.0
"""How long one that did not join waits at most: its token lets it in for an hour."""
LOOK_SECONDS = 10.0
"""How often one that did not join looks whether the room is there."""
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 10.0
"""How long LiveKit may not answer while the call is free."""
BEATEN_SECONDS = 2.0
"""One that joined to act and does not have the call after so long was not the fastest."""
RECONNECT_SECONDS = 10.0
"""How long a lost connection to the room may take to come back."""
ON_BEHALF = "lk.publish_on_behalf"
"""LiveKit's attribute of a participant that is not the agent itself: front ends look past it."""


class Whereabouts(Protocol):
    """A place to wait. `ear` is there if the caller can be heard from it; `seconds` is how long
    one can wait there, None for ever."""

    kind: StandbyKind
    seconds: float | None
    ear: CallerEar | None

    async def begin(self, gone: Gone) -> None:
        """Be there. May raise whatever LiveKit raises."""

    async def has_caller(self) -> bool:
        """Whether the room is the one that this job is for, and a caller is in it, now."""

    def approach(self) -> None:
        """The call is free, and is being taken: lose no time until it is."""

    async def act(self) -> None:
        """Become the agent of the call."""

    async def end(self) -> None:
        """Let go of what waiting took."""


class Outside:
    """Not connected to the room at all. Who joins a room that is gone makes it again, and LiveKit
    does not tell this job that it was sent away, so its dispatch is looked for first: that ends
    with the room, or with the wish for this standby."""

    kind: StandbyKind = "following"
    seconds: float | None = TOKEN_SECONDS
    ear: CallerEar | None = None

    def __init__(self, job: JobContext) -> None:
        """Be asked by LiveKit's own variables, which a worker sets for its jobs."""
        self._job = job
        self._room = job.job.room.name
        self._dispatch = job.job.dispatch_id
        self._rooms: LiveKitRooms | None = None
        self._looking: asyncio.Task[None] | None = None
        self._joining: asyncio.Task[None] | None = None
        self._acts = self._said = False

    async def begin(self, gone: Gone) -> None:
        """Look for it from time to time: the room's end need not be in the records."""
        try:
            self._rooms = LiveKitRooms()
        except InvalidSettings as error:
            logger.warning(
                "a standby that did not join cannot look whether its room is still there (%s): "
                "it may open it again, and may act though it was sent away",
                error,
            )
            return
        self._looking = asyncio.create_task(self._look(gone), name="recall standby looks")

    async def has_caller(self) -> bool:
        """Ask LiveKit, again and again if it does not answer: nobody can be joined meanwhile.

        Raises:
            RoomsUnavailable: For `PATIENCE_SECONDS`. A watcher brings another standby.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await self._is_live(self._rooms)
            except RoomsUnavailable as error:
                logger.warning("the call is free, and its room cannot be asked for: %s", error)
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    def approach(self) -> None:
        """Join: the session, whose start does so too, finds it done or under way."""
        if self._joining is None:
            self._joining = asyncio.create_task(self._join(), name="recall standby joins")
            self._joining.add_done_callback(_joined)

    async def act(self) -> None:
        """Ask no more, and be an agent like any other."""
        self._acts = True
        await self._look_no_more()
        if self._said:
            await _say(self._job, {STANDBY: "", ON_BEHALF: ""})

    async def end(self) -> None:
        """Ask no more, and leave if this was on its way in."""
        await self._look_no_more()
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.wait([self._joining])
            await self._job.room.disconnect()

    async def _join(self) -> None:
        await self._job.connect()
        await asyncio.sleep(BEATEN_SECONDS)
        if not self._acts:  # another was faster: this one waits on, in the room
            self._said = True
            await _say(self._job, {STANDBY: self.kind, ON_BEHALF: _holder(self._job)})

    async def _look_no_more(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        if self._rooms is not None:
            await self._rooms.aclose()
            self._rooms = None

    async def _is_live(self, rooms: LiveKitRooms | None) -> bool:
        if rooms is None:
            return True
        there, members = await asyncio.gather(
            self._is_sent(rooms), rooms.members(self._room), return_exceptions=True
        )
        for answer in (there, members):
            if isinstance(answer, BaseException):
                raise answer
        assert not isinstance(members, BaseException)
        return bool(there) and any(member.kind == "caller" for member in members)

    async def _is_sent(self, rooms: LiveKitRooms) -> bool:
        dispatches = await rooms.dispatches(self._room)
        return any(one.id == self._dispatch for one in dispatches)

    async def _look(self, gone: Gone) -> None:
        while self._rooms is not None:
            with suppress(RoomsUnavailable):
                if not await self._is_sent(self._rooms):
                    gone("its room is gone, or it was sent away")
                    return
            await asyncio.sleep(LOOK_SECONDS)


class Inside:
    """In the room, without a session: no track, no answer to anything, and an ear."""

    kind: StandbyKind = "joined"
    seconds: float | None = None

    def __init__(self, job: JobContext, ear_seconds: float) -> None:
        """Keep the caller's last `ear_seconds`."""
        self.ear: CallerEar | None = None
        self._job = job
        self._ear_seconds = ear_seconds
        self._gone: Gone | None = None

    async def begin(self, gone: Gone) -> None:
        """Join, if the entrypoint has not, and say what this is."""
        self._gone = gone
        self._job.room.on("disconnected", self._left)
        await self._job.connect(auto_subscribe=AutoSubscribe.SUBSCRIBE_NONE)
        await _say(self._job, {STANDBY: self.kind, ON_BEHALF: _holder(self._job)})
        self.ear = CallerEar(self._job.room, self._ear_seconds)

    async def has_caller(self) -> bool:
        """Look around, once the connection is there."""
        room = self._job.room
        if room.connection_state == rtc.ConnectionState.CONN_RECONNECTING:
            await self._reconnected(room)
        return room.isconnected() and any(map(is_caller, room.remote_participants.values()))

    def approach(self) -> None:
        """It is there already."""

    async def act(self) -> None:
        """Be an agent like any other: heard, seen, and subscribed to everybody."""
        room = self._job.room
        room.off("disconnected", self._left)
        room.on("track_published", _subscribe)
        for participant in room.remote_participants.values():
            for publication in participant.track_publications.values():
                _subscribe(publication, participant)
        await _say(self._job, {STANDBY: "", ON_BEHALF: ""})

    async def end(self) -> None:
        """Hear nothing more, and leave."""
        self._job.room.off("disconnected", self._left)
        if self.ear is not None:
            await self.ear.aclose()
        await self._job.room.disconnect()

    async def _reconnected(self, room: rtc.Room) -> None:
        """Return when the lost connection is back, or seems not to come back."""
        changed = asyncio.Event()

        def change(*_: object) -> None:
            changed.set()

        room.on("connection_state_changed", change)
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), RECONNECT_SECONDS)
        room.off("connection_state_changed", change)

    def _left(self, reason: object = None) -> None:
        if self._gone is not None:
            self._gone("it is not in the room any more")


def _holder(job: JobContext) -> str:
    """Return the agent that this one stands by; whatever it is, front ends look past us."""
    others = job.room.remote_participants.values()
    agents = (one for one in others if one.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT)
    speaking = (one.identity for one in agents if not one.attributes.get(ON_BEHALF))
    return next(speaking, "recall")


async def _say(job: JobContext, attributes: dict[str, str]) -> None:
    try:
        await job.room.local_participant.set_attributes(attributes)
    except Exception as error:
        logger.warning("a standby's attributes could not be set: %s", error)


def _subscribe(publication: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant) -> None:
    publication.set_subscribed(True)


def _joined(joining: asyncio.Task[None]) -> None:
    """The session meets the same failure, and says it."""
    if not joining.cancelled() and (error := joining.exception()) is not None:
        logger.debug("a standby could not join: %s", error)
