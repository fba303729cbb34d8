"""Who speaks first in a session, and whether it greets or goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from livekit.agents import Agent, AgentSession, AgentTask, llm

from ..call import Call
from ..models import Briefing
from .agents import leave_unsaid
from .background import Background
from .bring_back import BringBack, is_started
from .hooks import Hooks
from .seeds.seeder import Seeder
from .sound.echo import end_warm_up
from .sound.voice import Voice

__all__ = ["Entrance"]

logger = logging.getLogger("recall_livekit")


class Entrance:
    """Stands at the beginning of each agent of a session; the first of them begins, once."""

    def __init__(
        self,
        call: Call,
        seeder: Seeder,
        background: Background,
        bring_back: BringBack,
        *,
        had_agent: Callable[[], bool],
        is_successor: Callable[[], bool],
    ) -> None:
        """`had_agent` says without records whether somebody was here before, `is_successor`
        whether the call was handed over to this worker on purpose."""
        self._call = call
        self._had_agent = had_agent
        self._seeder = seeder
        self._background = background
        self._bring_back = bring_back
        self._is_successor = is_successor
        self._session: AgentSession[Any] | None = None
        self._voice: Voice | None = None
        self._waited = 0.0
        self._waits = self._asked = self._entered = False
        self.hooks: Hooks | None = None
        self.begun = asyncio.Event()
        """Set once the first words are on their way, whoever says them."""
        self.by_itself = False
        """Whether the first words follow by themselves: no agent of the session asks for them."""

    def open(self, session: AgentSession[Any], voice: Voice, waited: float) -> None:
        """Begin with this session; `waited` of `seed_wait` is used up (seconds)."""
        self._session, self._voice, self._waited = session, voice, waited

    async def is_fresh(self) -> bool:
        """Whether a new call is to be greeted here; waits only what `seed_wait` leaves."""
        await self._read()
        return self._call.may_speak and self._is_fresh

    async def enter(self) -> None:
        """Greet or go on, once, unless a live holder has the call."""
        await self._read()
        await self._seeder.seed()
        if self._call.may_speak and not self._entered:
            await self._begin()

    async def go_on(self) -> None:
        """The standby acts: on a call of which nothing is recorded it is the first to speak."""
        await self._seeder.seed()
        self._entered = False
        entry = self._session.current_agent if self._session else None
        if entry is None or not await self._bring(entry, entered=True):
            await self._begin()

    # --- a `Listener` of the session's agents -------------------------------------------------

    async def entering(self, agent: Agent) -> bool:
        """The first agent may have another in its place; that one goes on instead of greeting."""
        await self._seeder.seed()
        hooks: object = self.hooks
        if agent is self._bring_back.agent and agent is not hooks and not self._entered:
            await self.enter()
            return False
        is_first, self._asked = not self._asked, True
        if is_first and self._bring_back.is_possible:
            await self._read()
            if self._call.may_speak and await self._bring(agent, entered=False):
                return False
        if is_first and self.by_itself:
            await self.enter()
        return True

    async def before_model(self, agent: Agent, chat_ctx: llm.ChatContext) -> None:
        """Have the seed in the context of a model call; waits only what `seed_wait` leaves."""
        left = self._voice.wait_left if self._voice else 0.0
        await self._seeder.before_model(agent, chat_ctx, left)

    # --- inside -------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Wait for the records within `seed_wait`, which begins when it is first asked for."""
        if self._voice is None:
            await self._call.ready(self._call.settings.seed_wait)
            return
        if not self._waits:
            self._waits = True
            self._voice.begin_wait(self._waited)
        await self._call.ready(self._voice.wait_left)

    @property
    def _is_fresh(self) -> bool:
        """Records unread, the room's age decides."""
        if self._call.known:
            return self._call.briefing.fresh
        return not self._had_agent()

    async def _begin(self) -> None:
        self._entered = True
        try:
            await self._say_first_words()
        finally:
            self.begun.set()

    async def _say_first_words(self) -> None:
        assert self.hooks is not None
        if self._is_fresh:
            await self.hooks.on_fresh()
            return
        briefing = self._told()
        if self._session is not None:
            end_warm_up(self._session)
            self._bring_back.say_who_is_missing(self._session.current_agent)
        if briefing is not None and self._is_successor():
            await self.hooks.on_handover(briefing)
        else:
            await self.hooks.on_resume(briefing)

    def _told(self) -> Briefing | None:
        """Return what is known, with the silence until now; None while it is not read."""
        if not self._call.known:
            return None
        return self._call.briefing.model_copy(update={"silence": self._call.silence})

    async def _bring(self, entry: Agent, *, entered: bool) -> bool:
        """Whether the agent that was active takes the place of `entry`, which did or did not
        enter."""
        agent = self._bring_back.make(entry)
        if agent is None or self._session is None:
            return False
        if isinstance(agent, AgentTask) and entered:
            logger.warning("the task %s is not taken up: %r goes on", agent.id, entry.id)
            return False
        self._seeder.follow(agent, told=True)
        await self._seeder.seed()
        if isinstance(agent, AgentTask):
            await self._finish(self._session, agent)
            return True
        if not entered:
            leave_unsaid(entry)
        self._background.spawn(self._switch(self._session, entry, agent))
        return True

    async def _switch(self, session: AgentSession[Any], entry: Agent, agent: Agent) -> None:
        if not await is_started(session):
            return
        if session.current_agent is entry:
            session.update_agent(agent)
        else:  # the application chose another one meanwhile
            await self.enter()

    async def _finish(self, session: AgentSession[Any], task: AgentTask[Any]) -> None:
        """A task is done within the agent that was started, which goes on afterwards: whoever
        waited for its result is gone."""
        try:
            await task
        except Exception as error:  # whatever the task completes with
            logger.info("the task %s ended with %r", task.id, error)
        session.generate_reply()
        self.begun.set()
