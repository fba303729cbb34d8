"""A standby for a live call, whenever it lacks one and nobody waits for an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import RoomsUnavailable, StoreError
from ..rooms.orders import Orders
from .leading import NotActing
from .plan import plan
from .tools import Tools
from .tries import Backoff

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Room

__all__ = ["StandbyKeeper"]


class StandbyKeeper:
    """Has a task of its own in the watch of a room: while a standby is brought, the agent is
    asked as ever."""

    def __init__(self, room: Room, tools: Tools) -> None:
        """Lack nobody."""
        self._room = room
        self._tools = tools
        self._lacks = False
        self._agent_name: str | None = None

    def lacks(self, lacks: bool, agent_name: str | None) -> None:
        """Say what the last look found, and who is to be dispatched."""
        self._lacks, self._agent_name = lacks, agent_name

    async def run(self) -> None:
        """Bring one whenever one is lacking, with pauses that grow if they do not stay."""
        tools, settings = self._tools, self._tools.settings
        backoff = Backoff(
            settings.standby_retry_first, settings.standby_retry_last, forget=settings.lived_well
        )
        while True:
            await tools.clock.sleep(settings.ask_interval)
            now = tools.clock.monotonic()
            if not self._lacks or backoff.left(now) > 0:
                continue
            try:
                if await self._bring():
                    backoff.failed(now)
            except NotActing:
                continue
            except (RoomsUnavailable, StoreError) as error:
                tools.reach.failed(error)

    async def _bring(self) -> bool:
        """Return whether one was dispatched."""
        tools = self._tools
        dispatches = await tools.rooms.dispatches(self._room.name)
        orders = Orders(resume=True, standby=tools.policy.standby)
        planned = plan(dispatches, self._agent_name, orders)
        if not tools.turns.is_calm(planned.agent_name):
            return False
        async with tools.turns.turn(planned.agent_name, standby=True):
            if not self._lacks:
                return False
            await tools.hands.bring_standby(self._room, planned)
        self._lacks = False
        return True
