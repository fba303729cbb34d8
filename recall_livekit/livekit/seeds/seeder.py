"""The seed of a call in its session: in the active agent's context, and in each model call."""

from __future__ import annotations

import weakref
from typing import Any

from livekit.agents import Agent, AgentSession, llm

from ...call import Call, CallState
from ...models import Briefing
from ..sound.echo import end_warm_up
from ..userdata import UserdataKeeper
from .realtime import RealtimeContext, realtime_model
from .seeding import merge_seed, seed_items, settle_history

__all__ = ["Seeder"]


class Seeder:
    """Brings a session to where its call stands, and again when the records say more."""

    def __init__(self, call: Call, userdata: UserdataKeeper[Any]) -> None:
        """Seed nothing yet."""
        self._call = call
        self._userdata = userdata
        self._seeded: Briefing | None = None
        self._seed: list[llm.ChatItem] = []
        self._is_final = False
        self._known: weakref.WeakSet[Agent] = weakref.WeakSet()
        self._apart: weakref.WeakSet[Agent] = weakref.WeakSet()
        """Agents that the application lets begin without the conversation."""
        self._has_seed: weakref.WeakSet[Agent] = weakref.WeakSet()
        self.session: AgentSession[Any] | None = None
        self.realtime: RealtimeContext | None = None
        self.agent: Agent | None = None
        """The agent that is seeded: the active one."""

    def enter(self, session: AgentSession[Any], agent: Agent) -> None:
        """`agent` is active in this session, and is to be told: called before it starts."""
        if self.session is None:
            self.session, self.realtime = session, RealtimeContext(session, agent)
        self.follow(agent, told=True)

    def follow(self, agent: Agent, *, told: bool = False) -> None:
        """`agent` is the active one from here on.

        It is seeded if it is to be `told`. Another is one that the application handed over to,
        with what the application gave it: it is seeded only if it had part in the call before it
        was cut off, and if it was given nothing of the conversation.
        """
        self.agent = agent
        if told:
            self._apart.discard(agent)
        elif agent not in self._known:
            (self._has_seed if self._carries_on(agent) else self._apart).add(agent)
        self._known.add(agent)
        if self.session is not None and realtime_model(self.session, agent) is not None:
            self._due()  # at once: what such a model must know is told before it starts

    def reopen(self) -> None:
        """Another worker has the call: what it records is news."""
        self._is_final = False

    async def seed(self) -> None:
        """Bring the agent's context to the newest briefing; nothing if it is there already."""
        agent = self._due()
        if agent is not None:
            merged = merge_seed(agent.chat_ctx, self._seed)
            await agent.update_chat_ctx(merged, exclude_invalid_function_calls=False)

    async def seed_when_read(self) -> None:
        """Wait for the records, however long they take, and seed."""
        await self._call.ready()
        await self.seed()

    async def settle(self) -> None:
        """Have the seed say how its open tool calls went, which were settled since."""
        if self._seed and self._call.known:
            self._seeded = self._call.briefing
            self._seed = seed_items(self._seeded)
            self._has_seed.clear()
            if self.session is not None:
                settle_history(self.session.history, self._seed)
        await self.seed()
        if self.realtime is not None:
            await self.realtime.confirmed(self._call.settings.seed_wait)

    async def before_model(self, agent: Agent, chat_ctx: llm.ChatContext, seconds: float) -> None:
        """Have the seed in the context of a model call; the records are waited for `seconds`."""
        if not self._call.known and seconds:
            await self._call.ready(seconds)
        await self.seed()
        if self._has_head(agent.chat_ctx) and not self._has_head(chat_ctx):
            chat_ctx.items[:] = merge_seed(chat_ctx, self._seed).items

    def _due(self) -> Agent | None:
        """Take the newest briefing; return the agent if its context is to be brought to it."""
        agent = self.agent
        if agent is None or not self._call.known:
            return None
        if not self._is_final:
            if self._seeded is not self._call.briefing:
                self._take(self._call.briefing, agent)
            self._is_final = self._call.state is CallState.HOLDING  # now it is we who record
        if not self._seed or agent in self._has_seed or not self._is_told(agent):
            return None
        self._has_seed.add(agent)
        told = self.realtime is not None and self.realtime.seed(agent, self._seed)
        return None if told else agent

    def _take(self, briefing: Briefing, agent: Agent) -> None:
        self._seeded = briefing
        items = seed_items(briefing)
        if self.session is not None:
            self._userdata.restore(self.session, briefing.userdata)
        if not items or _has_turns(agent.chat_ctx, briefing, items):
            return
        self._seed = items
        self._has_seed.clear()
        if self.session is not None:
            end_warm_up(self.session)
            settle_history(self.session.history, items)
            known = {item.id for item in self.session.history.items}
            self.session.history.insert([item for item in items if item.id not in known])

    def _is_told(self, agent: Agent) -> bool:
        if agent not in self._apart:
            return True
        labels = {turn.agent for turn in self._seeded.turns} if self._seeded else set()
        return agent.id in labels or (self._seeded is not None and agent.id == self._seeded.agent)

    def _carries_on(self, agent: Agent) -> bool:
        history = self.session.history.items if self.session is not None else []
        return not {item.id for item in history}.isdisjoint(i.id for i in agent.chat_ctx.items)

    def _has_head(self, chat_ctx: llm.ChatContext) -> bool:
        return bool(self._seed) and any(item.id == self._seed[0].id for item in chat_ctx.items)


def _has_turns(chat_ctx: llm.ChatContext, briefing: Briefing, seed: list[llm.ChatItem]) -> bool:
    """Whether all turns of a seed are in a context already: they are this worker's own, which
    took its lease after they were said."""
    turns = {item.id for item in seed if isinstance(item, llm.ChatMessage)} - {seed[0].id}
    return bool(briefing.turns) and turns <= {item.id for item in chat_ctx.items}
