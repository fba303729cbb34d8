"""Looking at a room: LiveKit tells who is in it, the records how the call stands, and each agent
whether it lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from ..call_ids import standby_call_id
from ..engine.liveness import Liveness
from ..engine.requests import Reading
from ..engine.runs import Origin
from ..engine.together import both
from ..rooms.protocol import Rooms, is_open
from ..seams import Clock
from ..transport import Transport
from .asking import Asker
from .counts import Counts
from .former import had_its_call
from .judgement import AgentStanding, Claim, Seen
from .known import Known
from .policy import Policy
from .settings import WatcherSettings

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Member, Room

__all__ = ["Look", "Looker"]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a room that is there, and what it was seen from."""

    seen: Seen
    members: Sequence[Member]
    reading: Reading

    @property
    def callers(self) -> list[Member]:
        """The callers in the room."""
        return callers_of(self.members)


class Looker:
    """Looks at rooms, never at more than `looks_at_once` at a time."""

    def __init__(
        self,
        rooms: Rooms,
        transport: Transport,
        clock: Clock,
        settings: WatcherSettings,
        policy: Policy,
        counts: Counts,
    ) -> None:
        """Look at nothing yet."""
        self._rooms = rooms
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._policy = policy
        self._counts = counts
        self._asker = Asker(rooms, clock, settings, policy, counts)
        self._at_once = anyio.Semaphore(settings.looks_at_once)

    async def still_speaks(self, room: Room, known: Known) -> bool:
        """Ask the agent of the call alone, and return whether it lives and nothing hints at more.

        Raises:
            RoomsUnavailable.
        """
        agent = known.speaker
        if agent is None or known.is_out(agent.identity) or known.doubts(known.epoch):
            return False
        async with self._at_once:
            return await self._asker.still_speaks(room, known, agent)

    async def look(self, room: Room, known: Known) -> Look | None:
        """Look at the whole room; None if it is gone.

        Raises:
            RoomsUnavailable, StoreError.
        """
        async with self._at_once:
            self._counts.looks += 1
            (there, members), reading = await both(
                both(is_open(self._rooms, room.name, room.sid), self._rooms.members(room.name)),
                self._transport.read(room.name, Origin(room_sid=room.sid)),
            )
            if not there:
                return None
            reading = await self._of_this_caller(room, members, reading)
            seen = await self._seen(room, known, members, reading)
            return Look(seen, members, reading)

    # --- whose call it is ---------------------------------------------------------------------

    async def _of_this_caller(
        self, room: Room, members: Sequence[Member], reading: Reading
    ) -> Reading:
        """If the call was in another room before, it may be the same by its caller."""
        callers = callers_of(members)
        if reading.previous is None or not callers:
            return reading
        origin = Origin(room_sid=room.sid, caller=callers[0].identity)
        return await self._transport.read(room.name, origin)

    async def _claim(self, room: Room, known: Known, reading: Reading) -> Claim:
        if reading.run:
            return "goes_on"
        if not self._policy.serves(room):
            return "none"
        if not reading.current_run:
            return "served"
        if known.ended is None or known.ended[0] != reading.current_run:
            ended = await had_its_call(self._transport, room.name, reading, room.sid)
            known.ended = (reading.current_run, ended)
        return "none" if known.ended[1] else "served"

    # --- who is in it -------------------------------------------------------------------------

    async def _seen(
        self, room: Room, known: Known, members: Sequence[Member], reading: Reading
    ) -> Seen:
        claim = await self._claim(room, known, reading)
        called = bool(callers_of(members))
        if claim == "none" or not called:
            known.served()
            return Seen(claim=claim, called=called)
        self._bury_the_dead(known, reading)
        agents = [one for one in members if one.kind == "agent" and not known.is_out(one.identity)]
        known.meets(agents, self._clock.monotonic(), self._clock.now())
        agents = [one for one in agents if not (one.standby and known.silences.get(one.identity))]
        standings, stands_by = await both(
            self._asker.standings(room, known, agents, reading), self._stands_by(room)
        )
        seen = self._told(known, reading, claim, standings)
        return self._stood_by(self._since(seen, known), stands_by)

    def _told(
        self, known: Known, reading: Reading, claim: Claim, standings: dict[str, AgentStanding]
    ) -> Seen:
        silent = tuple(who for who, standing in standings.items() if standing == "silent")
        return Seen(
            claim=claim,
            called=True,
            liveness=reading.liveness if reading.run else Liveness.FREE,
            epoch=reading.epoch,
            doubtful=known.doubts(reading.epoch),
            speaking=tuple(who for who, standing in standings.items() if standing == "speaks"),
            silent=silent,
            silences=min((known.silences.get(who, 0) for who in silent), default=0),
            settling=max((self._asker.settling(known, who) for who in silent), default=0.0),
            waiting="waits" in standings.values(),
        )

    def _since(self, seen: Seen, known: Known) -> Seen:
        if seen.speaking:
            known.served()
            return seen
        now = self._clock.monotonic()
        alone_for, free_for = known.alone(now, epoch=seen.epoch, free=not seen.held)
        return replace(seen, alone_for=alone_for, free_for=free_for)

    async def _stands_by(self, room: Room) -> bool | None:
        """Whether somebody holds the lease of the call's standby; None if none is wanted."""
        if not self._policy.wants_standby(room.name):
            return None
        reading = await self._transport.read(standby_call_id(room.name))
        return reading.liveness is Liveness.LIVE

    @staticmethod
    def _stood_by(seen: Seen, stands_by: bool | None) -> Seen:
        """An agent that holds its call is to have a standby, if one is wanted and nobody waits for
        the call in the room: the successor of a handover does."""
        if stands_by is None:
            return seen
        held = seen.claim == "goes_on" and seen.liveness is Liveness.LIVE
        waiting = seen.waiting or stands_by
        return replace(seen, waiting=waiting, lacks_standby=held and not waiting)

    @staticmethod
    def _bury_the_dead(known: Known, reading: Reading) -> None:
        """The holder of a lease whose process is gone need not be asked."""
        if reading.liveness is Liveness.DEAD and known.speaker and known.epoch == reading.epoch:
            known.bury(known.speaker.identity, zombie=False)


def callers_of(members: Sequence[Member]) -> list[Member]:
    """Return the callers among the members of a room."""
    return [one for one in members if one.kind == "caller"]
