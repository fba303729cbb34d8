"""An agent's pulse: who asks it over LiveKit whether it lives is answered at once; and the
questions that an agent itself asks the others in its room."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from livekit import rtc
from livekit.agents import JobContext

from ...rooms.livekit_rooms import LiveKitRooms, Member
from ...rooms.orders import ALIVE, HAND_OVER, Pulse

__all__ = ["Others", "answer_rpcs"]

logger = logging.getLogger("recall_livekit")

ASK_SECONDS = 0.25
"""How long another agent may take to say that it lives; one that lives takes 2 to 15 ms."""
_CREDENTIALS = ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET")
_BEGINNING = ("reading", "acquiring")
_AWAY = ("standby", "read_only", "closed")


def answer_rpcs(
    room: rtc.Room,
    pulse: Callable[[], Pulse],
    hand_over: Callable[[], Awaitable[str]] | None = None,
) -> None:
    """Answer `recall.alive` with `pulse()`, and `recall.hand_over` with what `hand_over` returns,
    as soon as the room is connected; also where no session was started.

    `pulse` must not wait for anything. Calling this again replaces what was said before. A fault
    of ours ends no call: it is logged, and the agent counts as one that is not ours.
    """

    def register(*_: object) -> None:
        try:
            if room.isconnected():
                room.off("connection_state_changed", register)
                _register(room.local_participant, pulse, hand_over)
        except Exception:
            logger.exception("nobody can ask this agent whether it lives; the call goes on")

    room.on("connection_state_changed", register)
    register()


def _register(
    me: rtc.LocalParticipant,
    pulse: Callable[[], Pulse],
    hand_over: Callable[[], Awaitable[str]] | None,
) -> None:
    async def alive(_: rtc.RpcInvocationData) -> str:
        try:
            return pulse().model_dump_json()
        except Exception:
            logger.exception("how this agent stands cannot be told")
            return Pulse(state="").model_dump_json()

    me.register_rpc_method(ALIVE, alive)
    if hand_over is not None:
        give = hand_over

        async def give_away(_: rtc.RpcInvocationData) -> str:
            return await give()

        me.register_rpc_method(HAND_OVER, give_away)


class Others:
    """The other agents in this job's room, as LiveKit's server knows them."""

    def __init__(self, room: str, identity: str, agent_name: str) -> None:
        """Ask nothing yet. `identity` is this agent's own."""
        self._room = room
        self._identity = identity
        self._agent_name = agent_name
        self._rooms: LiveKitRooms | None = None

    @classmethod
    def of(cls, job: JobContext | None) -> Others | None:
        """Return who can be asked; None where nobody can: no job, or no key to LiveKit's API."""
        if job is None or job.is_fake_job() or not all(map(os.environ.get, _CREDENTIALS)):
            return None
        try:
            return cls(job.job.room.name, job.local_participant_identity, job.job.agent_name)
        except Exception as error:  # it reads the job's token
            logger.warning("this job does not tell who it is in its room: %s", error)
            return None

    async def live(self) -> bool:
        """Whether one of them lives and has the call, or is about to; 0.25 s if one is dead.

        An agent that is not ours counts if it goes by this one's name, one that waits as a
        standby does not, and of two that are only beginning the older one counts.

        Raises:
            RoomsUnavailable: LiveKit's server cannot be asked.
        """
        members = await self._server().members(self._room)
        me = next((one for one in members if one.identity == self._identity), None)
        others = [one for one in members if _is_agent(one) and one is not me]
        answers = await asyncio.gather(
            *(self._has_call(other, me) for other in others), return_exceptions=True
        )
        if True in answers:
            return True
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return False

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        if self._rooms is not None:
            await self._rooms.aclose()

    def _server(self) -> LiveKitRooms:
        if self._rooms is None:
            self._rooms = LiveKitRooms()
        return self._rooms

    async def _has_call(self, other: Member, me: Member | None) -> bool:
        pulse = await self._server().ask(self._room, other.identity, seconds=ASK_SECONDS)
        if pulse is None or pulse.state in _AWAY:
            return False
        if pulse.state in _BEGINNING:
            return me is None or (other.joined_at, other.identity) < (me.joined_at, me.identity)
        return pulse.state != "" or other.agent_name == self._agent_name


def _is_agent(member: Member) -> bool:
    """Not a standby, and not an avatar, which is of the same kind but was not dispatched."""
    return member.kind == "agent" and not member.standby and member.agent_name is not None
