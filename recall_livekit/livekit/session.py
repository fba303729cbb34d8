"""One `AgentSession` and its live call: who may be heard, who begins, what follows the lease.

Everything hangs on the session, so that an agent which overrides a hook without `super()`, or
hands over to another agent, is recorded and silenced all the same. `seeder` brings the agent to
where the call stands, `ending` ends it.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from livekit.agents import (
    Agent,
    AgentSession,
    ConversationItemAddedEvent,
    JobContext,
)

from ..actions import Resolver
from ..call import Call, CallState
from ..client import Recall
from ..models import Action
from .agents import listen
from .background import Background
from .bring_back import AgentFactory, BringBack, bringing
from .caller_link import Callers
from .ending import Ending, Part
from .entrance import Entrance
from .hooks import Hooks
from .place import Place
from .seeds.seeder import Seeder
from .sound.hearing import HeardAgain, heard_until
from .sound.voice import Voice
from .speech.observer import SessionObserver
from .succession.handover import Handover
from .succession.pulse import Others
from .succession.standby import Post, Standby
from .succession.switchboard import Switchboard
from .tools.actions import SessionActions
from .userdata import UserdataKeeper

__all__ = ["LiveSession"]

logger = logging.getLogger("recall_livekit")


class LiveSession:
    """Ties a `Call` to a session, from an agent's construction to the end of the session."""

    _open: ClassVar[weakref.WeakSet[LiveSession]] = weakref.WeakSet()

    def __init__(
        self,
        call: Call,
        place: Place,
        userdata: UserdataKeeper[Any],
        *,
        recall: Recall,
        owned: bool,
        shutdown_when_left: bool,
        resume_agents: Mapping[str, AgentFactory],
    ) -> None:
        """Begin to read and to acquire; `recall`, if `owned`, is closed with the call."""
        self.call = call
        self.place = place
        self.recall = recall
        self.session: AgentSession[Any] | None = None
        self.standby: Standby | None = None
        """The wait for the call, if this worker waits or waited without a session."""
        self.waited = 0.0
        """How much of `seed_wait` was used up before the session began (seconds)."""
        self._hearing: HeardAgain | None = None
        self._post: Post | None = None
        self._userdata = userdata
        self._owned = owned
        self._voice: Voice | None = None
        self._background = Background()
        self._actions = SessionActions(call, self._background.spawn)
        self._seeder = Seeder(call, userdata)
        self._ending = Ending(
            call, place, self._background, self._parts, shutdown_when_left=shutdown_when_left
        )
        self._switchboard = Switchboard(call, place.orders, self._handover)
        self._entrance = Entrance(
            call,
            self._seeder,
            self._background,
            BringBack(call, resume_agents),
            had_agent=lambda: self.place.had_agent(call.settings.room_age),
            is_successor=lambda: self._switchboard.successor,
        )
        self._others = Others.of(place.job)
        self._open.add(self)
        self._begin(place.job)

    def _begin(self, job: JobContext | None) -> None:
        """Have the call ask and tell us, then start it."""
        self.call.subscribe(self._state_changed)
        self.call.on_dying(self._ending.leave_room)
        if self._others is not None:
            self.call.ask_first(self._others.live)
        if job is not None:
            self.call.ask_caller(Callers(job.room).who)
        self.call.start()
        if job is not None:
            self._switchboard.open(job.room)
            job.add_shutdown_callback(self._ending.job_ends)

    @classmethod
    def of_job(cls, call_id: str, job: JobContext | None) -> LiveSession | None:
        """Return this job's live session of the call: whichever of its agents is made or started
        first, they are one worker, and must not wait for each other."""
        for live in cls._open:
            mine = live.call is bringing.get() or (job is not None and live.place.job is job)
            if mine and live.call.call_id == call_id and not live._ending.over:
                return live
        return None

    @classmethod
    def of_session(cls, session: AgentSession[Any]) -> LiveSession | None:
        """Return the live session that has this session already."""
        return next((live for live in cls._open if live.session is session), None)

    def discard(self) -> None:
        """End without a word: the session has another live session already."""
        self._ending.discard()

    async def withdraw(self) -> None:
        """A standby has nothing to wait for any more: leave the room and end the job, once."""
        await self._ending.withdraw()

    async def closed(self) -> None:
        """Wait until everything of the call on this worker has ended."""
        await self._background.ended()

    def _parts(self) -> Iterator[Part | None]:
        yield from (self._hearing, self.standby, self._post, self._others)
        yield self._seeder.realtime
        yield self.recall if self._owned else None

    # --- from the agent -----------------------------------------------------------------------

    def attach(
        self, session: AgentSession[Any], agent: Agent, hooks: Hooks, *, by_itself: bool = False
    ) -> None:
        """Take the session over: called as its activity starts, before its `on_enter`.

        `by_itself`: the first words are said without an agent that calls `enter`.
        """
        self._entrance.hooks = hooks
        listen(agent, self._entrance)
        self._seeder.enter(session, agent)
        self._actions.watch(session)
        if self.session is not None:
            return
        self.session = session
        self._observer = SessionObserver(session, self.call, self._userdata)
        self._voice = Voice(self.call, session)  # in front of it: what is swallowed was not said
        self._entrance.open(session, self._voice, self.waited)
        self._entrance.by_itself = by_itself
        self._ending.watch(session)
        session.on("conversation_item_added", self._item_added)
        if self.place.job is not None:
            self._switchboard.open(self.place.job.room)  # not an agent's that was only made
        self._follow_state(self.call.state)
        self._hear_again(session)
        work = self._seeder.seed() if self.call.known else self._seeder.seed_when_read()
        self._background.spawn(work)

    async def enter(self) -> None:
        """Greet or go on, once, unless a live holder has the call: `on_enter` of the agent."""
        await self._entrance.enter()

    def enter_soon(self) -> None:
        """The same, for a session whose agent has entered already."""
        self._background.spawn(self._entrance.enter())

    async def begun(self) -> None:
        """Return once the first words are on their way: of `on_fresh`, `on_resume` or the like."""
        await self._entrance.begun.wait()

    async def is_fresh(self) -> bool:
        """Whether a new call is to be greeted here; waits only what `seed_wait` leaves."""
        return await self._entrance.is_fresh()

    async def reconcile(self, resolver: Resolver, seconds: float) -> tuple[Action, ...]:
        """See `RecallAgent.reconcile`."""
        left = await self._actions.reconcile(resolver, seconds)
        await self._seeder.settle()
        return left

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        """An agent became the active one, and is about to start."""
        if event.item.type == "agent_handoff" and self.session is not None:
            agent = self.session.current_agent
            listen(agent, self._entrance)
            self._seeder.follow(agent)

    def _hear_again(self, session: AgentSession[Any]) -> None:
        """Have the session hear first what the caller said while this worker waited in the room."""
        standby, audio = self.standby, session.input.audio
        if standby is None:
            self._warn_of_session()
        elif standby.where.ear is not None and audio is not None and self.call.known:
            since = heard_until(self.call.briefing, standby.freed_at)
            self._hearing = HeardAgain(audio, standby.where.ear, since, session)
            session.input.audio = self._hearing
        elif standby.where.ear is not None:
            self._background.spawn(standby.where.ear.aclose())

    def _warn_of_session(self) -> None:
        """A standby that did not wait in `stand_by` is one all the same, and the only one."""
        orders = self.place.orders
        if orders.standby is None or self.call.state is CallState.HOLDING:
            return
        logger.warning(
            "this standby waits with a started session: silent, but the caller's application sees "
            "a second agent. Write `if await agent.stand_by(session):` in front of "
            "`await session.start(agent, room=ctx.room)`"
        )
        if not orders.handover:
            self._post = Post(self.recall, self.call, self.place)
            self._post.take(self._has_another_standby)

    def _has_another_standby(self, why: str) -> None:
        if not self._ending.over and self.call.state is not CallState.HOLDING:
            self._ending.over = True
            self._background.spawn(self._ending.leave())

    # --- as the call's standing changes ---------------------------------------------------------

    def _state_changed(self, state: CallState) -> None:
        if self.session is not None and not self._ending.over:
            self._follow_state(state)
        unwanted = self.call.refusal is not None or self.call.lost == "over"
        waits = self.standby is not None and self.session is None  # it leaves by itself
        if state is CallState.CLOSED and unwanted and not self._ending.over and not waits:
            self._background.spawn(self._ending.leave())

    def _follow_state(self, state: CallState) -> None:
        if state in (CallState.STANDBY, CallState.READ_ONLY):
            self._seeder.reopen()
        if state is CallState.READ_ONLY:
            if self.call.lost == "frozen":
                self.call.abandon()  # another was called for
            self._background.spawn(self._lost(self.call.lost or "taken over"))
        if state is CallState.HOLDING and self._post is not None:
            self._background.spawn(self._post.aclose())
        assert self._voice is not None
        if not self.call.may_speak:
            self._voice.silence()
        elif state is CallState.HOLDING and self._voice.speak():
            self._background.spawn(self._entrance.go_on())

    async def _lost(self, reason: str) -> None:
        """Tell the application; a worker that was frozen leaves: being removed is no fence."""
        if reason == "frozen":
            await self._ending.leave_room()  # the hook may take its time
        try:
            if self._entrance.hooks is not None:
                await self._entrance.hooks.on_lease_lost(reason)
        finally:
            if reason == "handed over":
                await self._switchboard.answered()
            if reason in ("frozen", "handed over") or self.call.if_lease_lost == "leave":
                await self._ending.leave()

    def _handover(self) -> Handover | None:
        if self.session is None or self._voice is None or self._entrance.hooks is None:
            return None
        go_on = self._entrance.hooks.on_handover
        return Handover(self.call, self.session, self._observer, self._voice, go_on)
