"""Who calls: the participant whom the session listens to, and after a resume the same one again.

LiveKit's RoomIO links the first participant that it finds. When several people are in the room that
need not be the one with whom the call was begun.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession

from ..call import Call
from ..engine.runs import Origin
from .sound.ring import caller_name, is_caller

__all__ = ["CallerLink", "Callers"]

logger = logging.getLogger("recall_livekit")

LINK_SECONDS = 10.0
"""How long RoomIO may take to link somebody, once the records are read (seconds)."""
LOOK_SECONDS = 0.02


class Callers:
    """Those who are in a room to be served, connected or not yet."""

    def __init__(self, room: rtc.Room) -> None:
        """Look when asked."""
        self._room = room

    async def who(self, previous: Origin) -> str | None:
        """Return who calls, once somebody is there: who called before, if that is one of them."""
        while not (names := self._names()):  # noqa: ASYNC110  the asker bounds it
            await asyncio.sleep(LOOK_SECONDS)
        return previous.caller if previous.caller in names else names[0]

    def _names(self) -> list[str]:
        there = filter(is_caller, self._room.remote_participants.values())
        return [name for one in there for name in dict.fromkeys((caller_name(one), one.identity))]


class CallerLink:
    """Keeps one session on its caller."""

    def __init__(self, session: AgentSession[Any], call: Call) -> None:
        """Look, once the call is read, whether the recorded caller is the linked one."""
        self._session = session
        self._call = call
        self._room: rtc.Room | None = None
        self._wanted: str | None = None
        self._name: str | None = None
        self._task: asyncio.Task[None] | None = None
        if self._room_io is not None:
            self._task = asyncio.create_task(self._relink(), name="recall links the caller")
            self._task.add_done_callback(_told)

    @property
    def name(self) -> str | None:
        """The caller who is linked, or was last; None while nobody is."""
        linked = getattr(self._room_io, "linked_participant", None)
        if linked is not None:
            self._name = caller_name(linked)
        return self._name

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
        if self._room is not None:
            self._room.off("participant_connected", self._connected)

    @property
    def _room_io(self) -> Any:
        """The session's RoomIO, if it has one that can be told whom to link."""
        try:
            room_io: Any = self._session.room_io
        except (AttributeError, RuntimeError):
            return None
        return room_io if callable(getattr(room_io, "set_participant", None)) else None

    async def _relink(self) -> None:
        await self._call.ready()
        room_io = self._room_io
        caller = self._call.briefing.caller if self._call.known else None
        if room_io is None or caller is None or _is_chosen(room_io):
            return
        self._wanted, self._room = caller, room_io.room
        self._room.on("participant_connected", self._connected)
        async with asyncio.timeout(LINK_SECONDS):
            while room_io.linked_participant is None:  # noqa: ASYNC110  nobody is told of it
                await asyncio.sleep(LOOK_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)  # RoomIO sets its streams up for whom it found
        for participant in list(self._room.remote_participants.values()):
            self._connected(participant)

    def _connected(self, participant: rtc.RemoteParticipant) -> None:
        """Link the recorded caller, who is here, instead of whoever was first."""
        room_io = self._room_io
        if room_io is None or not is_caller(participant) or not self._is_wanted(participant):
            return
        linked = room_io.linked_participant
        if linked is not None and not self._is_wanted(linked):
            logger.info("the caller of this call is linked again instead of another participant")
            room_io.set_participant(participant.identity)

    def _is_wanted(self, participant: rtc.RemoteParticipant) -> bool:
        return self._wanted in (participant.identity, caller_name(participant))


def _is_chosen(room_io: Any) -> bool:
    """Whether the application itself said whom to link, as far as this version shows it."""
    options = getattr(room_io, "_options", None)
    return isinstance(getattr(options, "participant_identity", None), str)


def _told(task: asyncio.Task[None]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(error, TimeoutError):
        logger.debug("nobody was linked: the caller is linked when he comes")
    else:
        logger.warning("the caller could not be linked again: %r", error)
