"""One `AgentSession` and its live call: who may be heard, what is seeded, when it is over.

Everything hangs on the session, so that an agent which overrides a hook without `super()`, or
hands over to another agent, is recorded and silenced all the same.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Coroutine
from typing import Any, ClassVar, Protocol

from livekit.agents import (
    Agent,
    AgentSession,
    CloseEvent,
    ConversationItemAddedEvent,
    JobContext,
    llm,
)

from ..call import Call, CallState
from ..client import Recall
from ..models import Briefing
from .closing import Closing
from .echo import end_warm_up
from .handover import Handover
from .hearing import HeardAgain, heard_until
from .observer import SessionObserver
from .place import Place
from .pulse import Others
from .seeding import merge_seed, seed_items
from .standby import Post, Standby
from .switchboard import Switchboard
from .tools import guard_tools
from .userdata import UserdataKeeper
from .voice import Voice

__all__ = ["Hooks", "LiveSession"]

logger = logging.getLogger("recall_livekit")


class Hooks(Protocol):
    """What a `RecallAgent` is asked and told."""

    async def on_fresh(self) -> None:
        """A new call begins."""

    async def on_resume(self, briefing: Briefing | None) -> None:
        """A call goes on."""

    async def on_handover(self, briefing: Briefing) -> None:
        """A call goes on that another worker gave away between two sentences."""

    async def on_lease_lost(self, reason: str) -> None:
        """Another worker has the call."""


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
        self._shutdown_when_left = shutdown_when_left
        self._agent: Agent | None = None
        self._hooks: Hooks | None = None
        self._closing: Closing | None = None
        self._voice: Voice | None = None
        self._entered = False
        self._seeded: Briefing | None = None
        self._seed: list[llm.ChatItem] = []
        self._over = False
        self._switchboard = Switchboard(call, place.orders, self._handover)
        self._others = Others.of(place.job)
        self._tasks: set[asyncio.Task[None]] = set()
        self._open.add(self)
        call.subscribe(self._state_changed)
        call.on_dying(self._leave_room)
        if self._others is not None:
            call.ask_first(self._others.live)
        call.start()
        if place.job is not None:
            self._switchboard.open(place.job.room)
            place.job.add_shutdown_callback(self._job_ends)

    @classmethod
    def of_job(cls, call_id: str, job: JobContext | None) -> LiveSession | None:
        """Return this job's live session of the call: whichever of its agents is made or started
        first, they are one worker, and must not wait for each other."""
        for live in cls._open:
            mine = job is not None and live.place.job is job
            if mine and live.call.call_id == call_id and not live._over:
                return live
        return None

    @classmethod
    def of_session(cls, session: AgentSession[Any]) -> LiveSession | None:
        """Return the live session that has this session already."""
        return next((live for live in cls._open if live.session is session), None)

    def discard(self) -> None:
        """End without a word: the session has another live session already."""
        self._over = True
        self._spawn(self._close(left=False))

    # --- from the agent -----------------------------------------------------------------------

    def attach(self, session: AgentSession[Any], agent: Agent, hooks: Hooks) -> None:
        """Take the session over: called as its activity starts, before its `on_enter`."""
        self._agent, self._hooks = agent, hooks
        self._guard_tools(session)
        if self.session is not None:
            return
        self.session = session
        self._observer = SessionObserver(session, self.call, self._userdata)
        self._voice = Voice(self.call, session)  # in front of it: what is swallowed was not said
        self._closing = Closing(session, self.place.job)
        session.on("conversation_item_added", self._item_added)
        session.on("close", self._session_closed)
        if self.place.job is not None:
            self._switchboard.open(self.place.job.room)  # not an agent's that was only made
        self._follow_state(self.call.state)
        self._hear_again(session)
        if self.call.known:
            self._spawn(self.seed())
        else:
            self._spawn(self._seed_when_read())

    async def enter(self) -> None:
        """Greet or go on, once, unless a live holder has the call: `on_enter` of the agent."""
        if self._voice is not None:
            self._voice.begin_wait(self.waited)
        await self.call.ready(max(0.0, self.call.settings.seed_wait - self.waited))
        await self.seed()
        if self.call.may_speak and not self._entered:
            await self._begin()

    async def before_model(self, chat_ctx: llm.ChatContext) -> None:
        """Have the seed in the context of a model call; waits only what `seed_wait` leaves."""
        if not self.call.known and self._voice is not None:
            await self.call.ready(self._voice.wait_left)
        await self.seed()
        if self._seed and not any(item.id == self._seed[0].id for item in chat_ctx.items):
            chat_ctx.items[:] = merge_seed(chat_ctx, self._seed).items

    async def seed(self) -> None:
        """Bring the agent's context to the newest briefing; nothing if it is there already."""
        if not self.call.known or self._seeded is self.call.briefing or self._agent is None:
            return
        briefing = self._seeded = self.call.briefing
        items = self._seed = seed_items(briefing)
        if self.session is not None:
            if items:
                end_warm_up(self.session)
            self._userdata.restore(self.session, briefing.userdata)
            known = {item.id for item in self.session.history.items}
            self.session.history.insert([item for item in items if item.id not in known])
        if items:
            merged = merge_seed(self._agent.chat_ctx, items)
            await self._agent.update_chat_ctx(merged, exclude_invalid_function_calls=False)

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
            self._spawn(standby.where.ear.aclose())

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
        if not self._over and self.call.state is not CallState.HOLDING:
            self._over = True
            self._spawn(self._leave())

    # --- as the call's standing changes ---------------------------------------------------------

    def _state_changed(self, state: CallState) -> None:
        if self.session is not None and not self._over:
            self._follow_state(state)
        unwanted = self.call.refusal is not None or self.call.lost == "over"
        waits = self.standby is not None and self.session is None  # it leaves by itself
        if state is CallState.CLOSED and unwanted and not self._over and not waits:
            self._spawn(self._leave())

    def _follow_state(self, state: CallState) -> None:
        if state is CallState.READ_ONLY:
            if self.call.lost == "frozen":
                self.call.abandon()  # another was called for
            self._spawn(self._lost(self.call.lost or "taken over"))
        if state is CallState.HOLDING and self._post is not None:
            self._spawn(self._post.aclose())
        assert self._voice is not None
        if not self.call.may_speak:
            self._voice.silence()
        elif state is CallState.HOLDING and self._voice.speak():
            self._spawn(self._go_on())

    async def _go_on(self) -> None:
        """The standby acts: on a call of which nothing is recorded it is the first to speak."""
        await self.seed()
        await self._begin()

    async def _begin(self) -> None:
        """Greet a new call, or go on with one: records unread, the room's age decides."""
        self._entered = True
        assert self._hooks is not None
        if self.call.known:
            briefing: Briefing | None = self.call.briefing
            fresh = self.call.briefing.fresh
        else:
            briefing, fresh = None, not self.place.had_agent(self.call.settings.room_age)
        if not fresh and self.session is not None:
            end_warm_up(self.session)
        if self._switchboard.successor and briefing is not None and not fresh:
            await self._hooks.on_handover(briefing)
        else:
            await (self._hooks.on_fresh() if fresh else self._hooks.on_resume(briefing))

    async def _lost(self, reason: str) -> None:
        """Tell the application; a worker that was frozen leaves: being removed is no fence."""
        if reason == "frozen":
            await self._leave_room()  # the hook may take its time
        try:
            if self._hooks is not None:
                await self._hooks.on_lease_lost(reason)
        finally:
            if reason == "handed over":
                await self._switchboard.answered()
            if reason in ("frozen", "handed over") or self.call.if_lease_lost == "leave":
                await self._leave()

    def _handover(self) -> Handover | None:
        if self.session is None or self._voice is None or self._hooks is None:
            return None
        go_on = self._hooks.on_handover
        return Handover(self.call, self.session, self._observer, self._voice, go_on)

    def _guard_tools(self, session: AgentSession[Any]) -> None:
        if not guard_tools(session, lambda: self.call.may_act):
            logger.warning(
                "this livekit-agents has no tool executor that we know: a worker that lost its "
                "call cannot refuse its tools"
            )

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        if event.item.type == "agent_handoff" and self.session is not None:
            guard_tools(self.session, lambda: self.call.may_act)

    # --- the end ------------------------------------------------------------------------------

    def _session_closed(self, event: CloseEvent) -> None:
        assert self._closing is not None
        outcome = self._closing.outcome(event)
        self._over = True
        self._spawn(self._close(outcome == "left"))
        self.call.outcome = self.call.outcome or outcome

    async def _close(self, left: bool) -> None:
        await self.call.aclose(self.call.outcome or "handover")
        owned = self.recall if self._owned else None
        for part in (self._hearing, self.standby, self._post, self._others, owned):
            if part is not None:
                await part.aclose()
        shut_down = self._closing.shutdown_job if self._closing else None
        if left and self._shutdown_when_left and shut_down is not None:
            shut_down("the caller left")

    async def _job_ends(self) -> None:
        """LiveKit's shutdown callback: also runs where the session never started."""
        if not self._over:
            self._over = True
            await self._close(left=False)
        else:
            await self.closed()

    async def closed(self) -> None:
        """Wait until everything of the call on this worker has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def withdraw(self) -> None:
        """A standby has nothing to wait for any more: leave the room and end the job, once."""
        if self._over:
            await self.closed()
        else:
            await self._leave()

    async def _leave(self) -> None:
        """This worker is not wanted on the call any more: leave the room and end the job."""
        self._over = True
        await self._leave_room()
        await self._close(left=False)
        shut_down = self._closing.shutdown_job if self._closing else None
        if shut_down is None and self.session is None and self.place.job is not None:
            shut_down = self.place.job.shutdown
        if shut_down is not None:
            shut_down("this worker is not wanted on the call")
        elif self.session is not None:
            await self.session.aclose()

    async def _leave_room(self) -> None:
        if self.place.job is not None:
            await self.place.job.room.disconnect()

    async def _seed_when_read(self) -> None:
        await self.call.ready()
        await self.seed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a hook of the call failed; the call goes on", exc_info=error)
