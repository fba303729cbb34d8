"""What a watcher does to a room. Before each act it makes sure that it is the one who acts."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

import anyio

from ..breaking import break_lease
from ..call_ids import standby_call_id
from ..client import Recall
from ..engine.liveness import Liveness
from ..errors import RoomsUnavailable, StoreError
from ..rooms.protocol import Rooms, is_open
from ..seams import Clock
from ..stores.keys import call_key
from .counts import Counts
from .known import Known
from .leading import Leader
from .looking import Look, callers_of
from .plan import Plan
from .settings import WatcherSettings

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Member, Room

__all__ = ["Came", "Hands"]

logger = logging.getLogger("recall_livekit.watcher")

Came = Literal["joined", "dropped", "left"]
"""What became of a dispatch: its agent is there; it never came; the caller went meanwhile."""
PATIENCE = (1, 2, 3, 6)
"""How many times `join_wait` each try of a call waits; the later ones like the last."""


class Hands:
    """Every method raises `RoomsUnavailable`, `StoreError`, and `NotActing` of the leader."""

    def __init__(
        self,
        rooms: Rooms,
        recall: Recall,
        leader: Leader,
        clock: Clock,
        settings: WatcherSettings,
        counts: Counts,
    ) -> None:
        """Do nothing yet."""
        self._rooms = rooms
        self._recall = recall
        self._leader = leader
        self._clock = clock
        self._settings = settings
        self._counts = counts

    # --- the old agent ------------------------------------------------------------------------

    async def replace(self, room: Room, known: Known, look: Look) -> None:
        """Count those that did not answer no more, throw them out, and free the call.

        The voice of one whose process is gone ends by itself: what was said is heard to the end.
        """
        seen, key = look.seen, call_key(room.name)
        if seen.liveness is Liveness.DEAD:
            for who in seen.silent:
                known.bury(who, zombie=False)
            return
        await self._leader.confirm()
        known.haunted_until = self._clock.monotonic() + self._settings.lived_well
        for who in seen.silent:
            known.bury(who, zombie=True)
            await self._evict(room, who, "it does not answer")
        read_position = look.reading.position
        if seen.held and await break_lease(
            self._recall._transport, room.name, seen.epoch, read_position
        ):
            self._counts.leases_broken += 1
            logger.warning("call %s: the lease of epoch %d is broken", key, seen.epoch)

    async def clear_away(self, room: Room, known: Known, look: Look) -> None:
        """Throw out those that came back, and those that died once another one speaks."""
        spoken_for = bool(look.seen.speaking)
        for who in _ghosts(look):
            await self._leader.confirm()
            known.bury(who, zombie=True)
            await self._evict(room, who, "another one speaks, and it does not answer")
        for member in look.members:
            if member.identity in known.zombies:
                await self._leader.confirm()
                await self._evict(room, member.identity, "it came back")
            elif spoken_for and member.identity in known.corpses:
                await self._leader.confirm()
                await self._evict(room, member.identity, "it is dead")

    async def _evict(self, room: Room, identity: str, why: str) -> None:
        await self._rooms.evict(room.name, identity)
        self._counts.evicted += 1
        logger.warning("call %s: %s was thrown out: %s", call_key(room.name), identity, why)

    # --- the new one --------------------------------------------------------------------------

    async def bring(self, room: Room, known: Known, look: Look, plan: Plan) -> Came:
        """Dispatch an agent, and return once it is there, or will not be."""
        before = {one.identity for one in look.members}

        def here(members: list[Member]) -> bool:
            agents = (one for one in members if one.kind == "agent" and not one.standby)
            return any(one.identity not in before for one in agents)

        async def in_room() -> Came | None:
            members = await self._rooms.members(room.name)
            if here(members):
                return "joined"
            return None if callers_of(members) else "left"

        await self._leader.confirm()
        began = self._clock.monotonic()
        known.unmet = await self._rooms.dispatch(
            room, plan.agent_name, metadata=plan.metadata, orders=plan.orders
        )
        self._counts.dispatched += 1
        patience = self._settings.join_wait * PATIENCE[min(known.drops, len(PATIENCE) - 1)]
        came = await self._await(in_room, patience)
        if came == "dropped" and await self._is_coming(room, known.unmet, look):
            came = await self._await(in_room, self._settings.coming_wait)
        known.drops = known.drops + 1 if came == "dropped" else 0
        if came == "joined":
            known.spend(known.unmet)
            self._count_joined(room, plan, self._clock.monotonic() - began)
        else:
            await self.call_off(room, known, because=came)
        return came

    async def call_off(self, room: Room, known: Known, *, because: Came = "left") -> None:
        """Withdraw the dispatch whose agent has not met the caller, if there is one."""
        if known.unmet is None:
            return
        await self._rooms.withdraw(room.name, known.unmet)
        known.spend(known.unmet)
        known.unmet = None
        key = call_key(room.name)
        if because == "left":
            self._counts.called_off += 1
            logger.info("call %s: nobody is there any more: the agent is called off", key)
        else:
            self._counts.dropped += 1
            logger.warning("call %s: the dispatch was dropped: no worker took it", key)

    async def bring_standby(self, room: Room, plan: Plan) -> bool:
        """Dispatch a standby, and return whether it is there."""

        async def stands_by() -> Came | None:
            reading = await self._recall._transport.read(standby_call_id(room.name))
            return "joined" if reading.liveness is Liveness.LIVE else None

        await self._leader.confirm()
        if not await is_open(self._rooms, room.name, room.sid):
            return False
        dispatch = await self._rooms.dispatch(
            room, plan.agent_name, metadata=plan.metadata, orders=plan.orders
        )
        self._counts.standbys_dispatched += 1
        if await self._await(stands_by, self._settings.join_wait) != "joined":
            await self._rooms.withdraw(room.name, dispatch)
            return False
        self._counts.standbys_joined += 1
        logger.info("call %s: an agent stands by", call_key(room.name))
        return True

    async def _is_coming(self, room: Room, dispatch: str, look: Look) -> bool:
        """Whether somebody took the call since it was looked at, or this job, and is only slow."""
        reading = await self._recall._transport.read(room.name)
        if reading.epoch > look.seen.epoch and reading.liveness is Liveness.LIVE:
            return True
        dispatches = await self._rooms.dispatches(room.name)
        return any(one.id == dispatch and one.launched for one in dispatches)

    async def _await(self, look: Callable[[], Awaitable[Came | None]], seconds: float) -> Came:
        """Look until something came of a dispatch; who cannot be asked meanwhile is asked again."""
        with anyio.move_on_after(seconds):
            while True:
                await self._clock.sleep(self._settings.join_poll)
                try:
                    came = await look()
                except (RoomsUnavailable, StoreError):
                    continue
                if came is not None:
                    return came
        return "dropped"

    def _count_joined(self, room: Room, plan: Plan, seconds: float) -> None:
        self._counts.joined += 1
        self._counts.join_seconds += seconds
        key, name = call_key(room.name), plan.agent_name
        logger.info("call %s: agent %r joined after %.0f ms", key, name, 1000 * seconds)


def _ghosts(look: Look) -> tuple[str, ...]:
    """Return the agents that another watcher, or nobody, saw die, and that were replaced since."""
    seen = look.seen
    replaced = seen.speaking and seen.silences > 1 and not seen.settling
    return seen.silent if replaced else ()
