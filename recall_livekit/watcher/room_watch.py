"""One room, from when it is first seen until it is gone: looked at again and again, whenever a
sign says so and from time to time; and done about what must be."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from ..engine.liveness import Liveness
from ..errors import RoomsUnavailable, StoreError
from ..rooms.orders import Orders
from ..stores.keys import call_key
from .judgement import Act, Decision, Seen, judge
from .known import Known
from .leading import NotActing
from .looking import Look
from .plan import Plan, died_before, expected_for, plan
from .reach import Faults
from .standby_keeper import StandbyKeeper
from .tools import Tools
from .tries import Tries

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Room

__all__ = ["RoomWatch"]

logger = logging.getLogger("recall_livekit.watcher")


class RoomWatch:
    """`run` it; `due` makes it look now."""

    def __init__(self, room: Room, tools: Tools) -> None:
        """Know nothing of the room yet."""
        self.room = room
        self._tools = tools
        self._known = Known()
        self._tries = Tries(tools.settings, has_fallback=bool(tools.policy.fallback_agent))
        self._wake = anyio.Event()
        self._lease_lives = anyio.Event()
        self._faults = Faults(room.name, tools.reach, tools.clock, tools.settings)
        self._standby = StandbyKeeper(room, tools, self._faults)
        self._hinted = True
        self._look_at = 0.0
        self._epoch = 0
        self._dropped_at: int | None = None
        self._lease_name: str | None = None
        self._gave_up = self._relied = self._waits = False

    def due(self, *, doubted: int = 0) -> None:
        """Look now: a sign came. `doubted` is the epoch of which it says that its holder may be
        gone."""
        self._known.doubted = max(self._known.doubted, doubted)
        self._hinted = True
        self._wake.set()

    async def run(self) -> None:
        """Watch the room until it is gone."""
        try:
            await self._run()
        finally:
            self._count_waiting(False)

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            if self._tools.follows:
                tasks.start_soon(self._follow_lease)
            if self._tools.policy.standby is not None:
                tasks.start_soon(self._standby.run)
            while (pause := await self._round()) is not None:
                with anyio.move_on_after(pause):
                    await self._wake.wait()
            tasks.cancel_scope.cancel()

    # --- looking ------------------------------------------------------------------------------

    async def _round(self) -> float | None:
        """Look, and do what is needed; return the seconds until the next round, None if the room
        is gone."""
        tools, settings = self._tools, self._tools.settings
        self._wake = anyio.Event()
        if not tools.leader.acts:
            return settings.sweep_interval
        try:
            if not self._wants_look() and await tools.looker.still_speaks(self.room, self._known):
                self._tries.lives(self._now)
                return settings.ask_interval
            self._hinted = False
            look = await self._look()
            return None if look is None else await self._judge(look)
        except NotActing:
            return settings.outage_wait
        except (RoomsUnavailable, StoreError) as error:
            return self._faults.failed(error)

    @property
    def _is_young(self) -> bool:
        age = self._tools.clock.now() - self.room.created_at
        return age < self._tools.settings.young_room

    @property
    def _now(self) -> float:
        return self._tools.clock.monotonic()

    def _wants_look(self) -> bool:
        return self._hinted or bool(self._known.silences) or self._now >= self._look_at

    async def _look(self) -> Look | None:
        look = await self._tools.looker.look(self.room, self._known)
        self._tools.reach.rooms_answered()
        self._tools.reach.records_answered()
        haunted = self._now < self._known.haunted_until
        self._look_at = self._now + (0.0 if haunted else self._tools.settings.look_interval)
        return look

    async def _follow_lease(self) -> None:
        """Be woken when the lease is free, or in doubt."""

        def doubt() -> None:
            self.due(doubted=self._epoch)

        while True:
            await self._lease_lives.wait()
            try:
                await self._tools.transport.wait_free(self.room.name, doubt=doubt)
            except StoreError as error:
                await self._tools.clock.sleep(self._faults.failed(error))
            else:
                self._lease_lives = anyio.Event()
                self.due()

    # --- doing --------------------------------------------------------------------------------

    async def _judge(self, look: Look) -> float | None:
        settings = self._tools.settings
        decision = judge(look.seen, settings)
        self._note(look, decision)
        self._standby.lacks(decision.act is Act.STANDBY, self._agent_name(look))
        match decision.act:
            case Act.REPLACE:
                await self._tools.hands.replace(self.room, self._known, look)
                return 0.0
            case Act.CALL_OFF:
                await self._tools.hands.call_off(self.room, self._known)
            case Act.DISPATCH:
                return await self._dispatch(look)
        await self._tools.hands.clear_away(self.room, self._known, look)
        return min(decision.seconds, settings.list_interval) if self._is_young else decision.seconds

    def _note(self, look: Look, decision: Decision) -> None:
        """Keep in mind what this look says of the agent's life."""
        seen, known = look.seen, self._known
        if known.arrive(look.callers):
            self._tries.forgive()
            self._gave_up = False
        if seen.claim != "none" and not seen.called:
            known.left = True
        if self._dropped_at is not None and seen.epoch > self._dropped_at:
            self._tries.lives(self._now)  # it came, had the call, and was gone before it was seen
        self._epoch, self._dropped_at = seen.epoch, None
        self._count_waiting(seen.claim != "none" and seen.called and not seen.speaking)
        if seen.liveness is Liveness.LIVE:
            self._lease_lives.set()
        if seen.speaking:
            self._lease_name = look.reading.agent_name or self._lease_name
            self._note_agent()
        elif decision.act in (Act.REPLACE, Act.DISPATCH) or _has_only_standby(seen):
            self._note_death(look)
        self._relied = seen.waiting and not seen.speaking

    def _count_waiting(self, waits: bool) -> None:
        self._tools.counts.waiting += int(waits) - int(self._waits)
        self._waits = waits

    def _note_agent(self) -> None:
        self._tries.lives(self._now)
        self._gave_up = self._gave_up and self._tries.deaths > 0
        self._known.unmet = None
        if self._relied:
            self._tools.counts.stood_in += 1
            logger.info("call %s: the standby took it over", self._key)

    def _note_death(self, look: Look) -> None:
        excused = self._known.is_excused(look.callers)
        if not self._tries.gone(self._now, excused=excused):
            return
        self._tools.counts.deaths += 1
        seen = look.seen
        how = "does not answer" if seen.silent else f"is gone ({seen.liveness.value})"
        logger.warning("call %s: its agent %s, death %d", self._key, how, self._tries.deaths)

    async def _dispatch(self, look: Look) -> float | None:
        """Bring an agent, if it is time; return the seconds until the next round."""
        tools, now = self._tools, self._now
        dispatches = await tools.rooms.dispatches(self.room.name)
        died = died_before(dispatches, look.callers, tools.clock.now(), tools.settings)
        fallback = tools.policy.fallback_agent
        used = any(one.agent_name == fallback for one in dispatches)
        self._tries.died_before(died, fallback_used=used)
        if self._tries.next != "agent":
            self._give_up()
        if self._tries.next == "nobody":
            return tools.settings.look_interval
        expected = expected_for(dispatches, self._known.spent, tools.clock.now(), tools.settings)
        if (wait := max(expected, self._tries.pause(now))) > 0:
            return wait
        orders = Orders(resume=look.seen.claim == "goes_on")
        instead = (fallback or "") if self._tries.next == "fallback" else ""
        agent_name = self._agent_name(look)
        return await self._bring(plan(dispatches, agent_name, orders, instead=instead))

    async def _bring(self, planned: Plan) -> float | None:
        """Wait for the turn, look again, and dispatch."""
        tools = self._tools
        async with tools.turns.turn(planned.agent_name):
            look = await self._look()
            if look is None:
                return None
            if judge(look.seen, tools.settings).act is not Act.DISPATCH:
                tools.counts.called_off += 1
                logger.info("call %s: it needs no other agent any more", self._key)
                return 0.0
            came = await tools.hands.bring(self.room, self._known, look, planned)
        if came == "joined":
            self._tries.lives(self._now)
            self._relied = False
            if planned.agent_name == tools.policy.fallback_agent:
                self._tries.fallback_came()
                tools.counts.fallbacks += 1
        elif came == "dropped":
            self._dropped_at = look.seen.epoch
            self._tries.dropped(self._now)
        return 0.0

    def _give_up(self) -> None:
        if self._gave_up:
            return
        self._gave_up = True
        self._tools.counts.given_up += 1
        instead = "the fallback comes" if self._tries.next == "fallback" else "nobody comes"
        logger.error(
            "call %s: given up: %d agents died: %s", self._key, self._tries.deaths, instead
        )

    def _agent_name(self, look: Look) -> str | None:
        """Who is to come: as the application says, or as whoever had the call was called."""
        given = self._tools.policy.agent_name
        return given if given is not None else look.reading.agent_name or self._lease_name

    @property
    def _key(self) -> str:
        return call_key(self.room.name)


def _has_only_standby(seen: Seen) -> bool:
    """Whether nobody but a standby is left, for whom the call is free."""
    return seen.waiting and not seen.speaking and not seen.silent and not seen.held
