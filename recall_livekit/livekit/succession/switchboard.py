"""What an agent answers over LiveKit: how it stands, and what came of handing its call over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from livekit import rtc

from ...call import Call, CallState
from ...rooms.orders import Orders, Pulse
from .handover import Given, Handover
from .pulse import answer_rpcs

__all__ = ["Switchboard"]

ANSWER_SECONDS = 0.1
"""How long an answer takes to be on its way, before this worker leaves the room."""


class Switchboard:
    """Answers for one live call, with a session or without."""

    def __init__(
        self, call: Call, orders: Orders, new_handover: Callable[[], Handover | None]
    ) -> None:
        """`new_handover` returns None while there is no session whose call could be given away."""
        self.successor = orders.handover
        """Whether the call, once it is this worker's, was handed over to it."""
        self._call = call
        self._orders = orders
        self._new_handover = new_handover
        self._giving: asyncio.Task[bool] | None = None

    def open(self, room: rtc.Room) -> None:
        """Answer in this room from now on, in the place of whoever of this job did before."""
        answer_rpcs(room, self.pulse, self.hand_over)

    def pulse(self) -> Pulse:
        """How this agent stands: looked at, never waited for."""
        state = self._call.state
        if state is CallState.READ_ONLY and self._call.may_speak:
            return Pulse(state="")  # without the call, by its own choice: it lives and speaks
        waits = state in (CallState.READING, CallState.STANDBY)
        kind = self._orders.standby if waits else None
        return Pulse(state=state.value, epoch=self._call.epoch, standby=kind)

    async def hand_over(self) -> Given:
        """Give the call away, or learn that it will be given to this worker; return which."""
        if self._call.state is CallState.STANDBY:
            self.successor = True
            return "successor"
        if self._giving is None or self._giving.done():
            handover = self._new_handover()
            if handover is None:
                return "kept"
            self._giving = asyncio.create_task(handover.give(), name="recall handover")
        return "handed over" if await asyncio.shield(self._giving) else "kept"

    async def answered(self) -> None:
        """Return when whoever told this worker to hand over knows of it: leaving the room ends
        an answer that is not out."""
        if self._giving is not None:
            await asyncio.wait([self._giving])
        await asyncio.sleep(ANSWER_SECONDS)
