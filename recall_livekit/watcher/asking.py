"""Asking the agents of a room whether they live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..engine.liveness import Liveness
from ..engine.requests import Reading
from ..engine.together import together
from ..rooms.orders import Pulse
from ..rooms.protocol import Rooms
from ..seams import Clock
from .counts import Counts
from .judgement import AgentStanding, standing_of
from .known import Known
from .policy import Policy
from .settings import WatcherSettings

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Member, Room

__all__ = ["Asker"]


class Asker:
    """Asks, and notes in what is known of the room who answered."""

    def __init__(
        self,
        rooms: Rooms,
        clock: Clock,
        settings: WatcherSettings,
        policy: Policy,
        counts: Counts,
    ) -> None:
        """Ask nothing yet."""
        self._rooms = rooms
        self._clock = clock
        self._settings = settings
        self._policy = policy
        self._counts = counts

    async def ask(self, room: Room, known: Known, agent: Member) -> Pulse | None:
        """Return how the agent stands; None if it does not answer in time, which is longer after
        a first silence.

        Raises:
            RoomsUnavailable.
        """
        again = known.silences.get(agent.identity, 0) > 0
        seconds = self._settings.ask_again_wait if again else self._settings.ask_wait
        self._counts.asked += 1
        pulse = await self._rooms.ask(room.name, agent.identity, seconds=seconds)
        self._counts.silences += pulse is None
        known.heard(agent, pulse)
        return pulse

    async def still_speaks(self, room: Room, known: Known, agent: Member) -> bool:
        """Ask the agent that was known to speak whether it still does.

        Raises:
            RoomsUnavailable.
        """
        return self._standing(known, agent, await self.ask(room, known, agent)) == "speaks"

    async def standings(
        self, room: Room, known: Known, agents: Sequence[Member], reading: Reading
    ) -> dict[str, AgentStanding]:
        """Return what each of these agents is to the caller; who is none of ours is left out.

        Raises:
            RoomsUnavailable.
        """
        pulses = await together([self._once(room, known, agent, reading) for agent in agents])
        return {
            agent.identity: self._standing(known, agent, pulse)
            for agent, pulse in zip(agents, pulses, strict=True)
            if self._is_ours(known, agent, pulse, reading)
        }

    async def _once(
        self, room: Room, known: Known, agent: Member, reading: Reading
    ) -> Pulse | None:
        """Once is enough if the holder is dead, and this one is not on its way in: a second time
        takes longer."""
        dead = reading.liveness is Liveness.DEAD
        if dead and known.silences.get(agent.identity) and not self.settling(known, agent.identity):
            return None
        return await self.ask(room, known, agent)

    def settling(self, known: Known, who: str) -> float:
        """Return for how long an agent may still be on its way in: one that answered before is
        not."""
        seen_for = self._clock.monotonic() - known.first_seen[who]
        never_spoke = known.speaker is None or known.speaker.identity != who
        return max(0.0, self._settings.settle_wait - seen_for) if never_spoke else 0.0

    @staticmethod
    def _standing(known: Known, agent: Member, pulse: Pulse | None) -> AgentStanding:
        standing = standing_of(pulse)
        if pulse is not None and standing == "speaks":
            known.speaks(agent, pulse)
        return standing

    def _is_ours(self, known: Known, agent: Member, pulse: Pulse | None, reading: Reading) -> bool:
        if pulse is not None and pulse.state:
            return True
        if agent.standby:
            return False  # one that does not answer: nobody waits for it, and nobody fears it
        spoke = known.speaker is not None and known.speaker.identity == agent.identity
        return spoke or self._policy.is_agent_of(agent, reading.agent_name)
