"""A standby for a live call, whenever it lacks one and nobody waits for an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from ..errors import RoomsUnavailable, StoreError
from ..rooms.orders import Orders
from .leading import NotActing
from .plan import plan
from .reach import Faults
from .tools import Tools
from .tries import Backoff

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Room

__all__ = ["StandbyKeeper"]


class StandbyKeeper:
    """Has a task of its own in the watch of a room: while a standby is brought, the agent is
    asked as ever."""

    def __init__(self, room: Room, tools: Tools, faults: Faults) -> None:
        """Lack nobody."""
        self._room = room
        self._tools = tools
        self._lacking = anyio.Event()
        self._agent_name: str | None = None
        self._faults = faults
        settings = tools.settings
        self._backoff = Backoff(
            settings.standby_retry_first, settings.standby_retry_last, forget=settings.lived_well
        )

    def lacks(self, lacks: bool, agent_name: str | None) -> None:
        """Say what the last look found, and who is to be dispatched."""
        self._agent_name = agent_name
        if lacks:
            self._lacking.set()
        elif self._lacking.is_set():
            self._lacking = anyio.Event()

    async def run(self) -> None:
        """Bring one whenever one is lacking, with pauses that grow if they do not stay."""
        clock, settings = self._tools.clock, self._tools.settings
        while True:
            await self._lacking.wait()
            if (left := self._backoff.left(clock.monotonic())) > 0:
                await clock.sleep(left)
            elif not await self._tried():
                await clock.sleep(settings.ask_interval)

    async def _tried(self) -> bool:
        """Bring one, if it is time; return whether it was tried: the next time is after a pause."""
        try:
            if not await self._bring():
                return False
        except NotActing:
            self.lacks(False, self._agent_name)  # as far as is known: whoever acts looks again
            return False
        except (RoomsUnavailable, StoreError) as error:
            self._faults.failed(error)
        self._backoff.failed(self._tools.clock.monotonic())
        return True

    async def _bring(self) -> bool:
        """Return whether one was dispatched."""
        tools = self._tools
        dispatches = await tools.rooms.dispatches(self._room.name)
        orders = Orders(resume=True, standby=tools.policy.standby)
        planned = plan(dispatches, self._agent_name, orders)
        if not tools.turns.is_calm(planned.agent_name):
            return False
        async with tools.turns.turn(planned.agent_name, standby=True):
            if not self._lacking.is_set():
                return False
            await tools.hands.bring_standby(self._room, planned)
        self.lacks(False, self._agent_name)
        return True
