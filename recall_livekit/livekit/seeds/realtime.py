"""Realtime models: what they are told of a call that goes on, without delaying its start.

A pipeline's model is given the whole context at each call. A realtime model has a session of its
own, elsewhere: a history that its agent has when it starts is sent there and *awaited*, up to 5 s.
So nothing is given to the agent before. What the model must not lose goes into its instructions,
before the start: OpenAI's plugin replays no developer messages when it reconnects, Gemini drops
them. The turns and tool calls follow as items as soon as the agent has started, and nobody waits
for their confirmation.

A model whose history cannot be changed (`mutable_chat_context`) gets the turns as text in its
instructions: some such models take a history for what the caller says now (agents#4899).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from livekit.agents import Agent, AgentSession, SpeechCreatedEvent, llm
from livekit.agents.utils import is_given

from ..background import Background
from .live_history import LiveHistory
from .notes import Notes
from .recap import recap
from .seeding import merge_seed

__all__ = ["RealtimeContext"]

logger = logging.getLogger("recall_livekit")

START_WAIT = 60.0
"""How long an agent may take to start (seconds): its toolsets are set up meanwhile."""
LOOK_INTERVAL = 0.01
"""How often it is looked whether it has (seconds): livekit-agents has no event for it."""


class RealtimeContext:
    """What the realtime model of a session's active agent knows of the call so far."""

    def __init__(self, session: AgentSession[Any], agent: Agent) -> None:
        """Nothing is told yet."""
        self._session = session
        self._agent = agent
        self._notes = Notes()
        self._history = LiveHistory()
        self._delivering = asyncio.Lock()
        self._items: list[llm.ChatItem] = []
        self._undelivered = False
        self._over = False
        self._warned = False
        self._background = Background("the realtime model does not know the call so far")
        session.on("speech_created", self._speech_created)

    def seed(self, agent: Agent, items: Sequence[llm.ChatItem]) -> bool:
        """Have the agent's model go on from these items: notes, turns and tool calls.

        Returns at once; False if it is no realtime model. Before the agent has started this
        changes its instructions alone, and only for a model that takes none later.
        """
        model = realtime_model(self._session, agent)
        if model is not None and items:
            self._agent = agent
            self._notes.text, self._items = recap(items, model.capabilities)
            self._go_on(model)
        return model is not None

    def _go_on(self, model: llm.RealtimeModel) -> None:
        if model.capabilities.mutable_instructions:
            self._deliver_soon()
        elif not self._started:
            self._notes.put(self._agent)
            self._deliver_soon()
        else:
            self._warn_of_late()

    async def aclose(self) -> None:
        """Deliver nothing any more."""
        self._over = True
        self._session.off("speech_created", self._speech_created)
        await self._background.aclose()

    def _deliver_soon(self) -> None:
        if not self._undelivered and not self._over:
            self._undelivered = True
            self._background.spawn(self._deliver_when_started())

    async def _deliver_when_started(self) -> None:
        """Bounded: the end of a start that failed is not told either."""
        loop = asyncio.get_running_loop()
        until = loop.time() + START_WAIT
        while self._undelivered and not self._started and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_INTERVAL)
        if self._undelivered and self._started:
            await self._deliver()

    def _speech_created(self, event: SpeechCreatedEvent) -> None:
        """The agent is about to speak: what it must know goes first, on the same connection."""
        if self._undelivered and self._started and not self._over:
            self._background.spawn(self._deliver())

    async def confirmed(self, seconds: float) -> None:
        """Return once the model has what it was to be told, or after `seconds`."""
        await self._background.settled(seconds)

    async def _deliver(self) -> None:
        self._undelivered = False
        async with self._delivering:
            agent, live = self._agent, live_session(self._agent)
            if live is None:
                return
            try:
                if live.capabilities.mutable_instructions:
                    await self._notes.tell(agent, live)
                if self._items:
                    self._warn_of_text(live)
                    await self._add_items(agent, live)
            except llm.RealtimeError as error:
                logger.warning("the realtime model did not confirm the call's history: %s", error)

    async def _add_items(self, agent: Agent, live: llm.RealtimeSession[Any]) -> None:
        context = merge_seed(agent.chat_ctx, self._items)
        _keep_live(context, live.chat_ctx, agent.chat_ctx)
        with self._history.change(live, self._items):
            await agent.update_chat_ctx(context, exclude_invalid_function_calls=False)

    @property
    def _started(self) -> bool:
        """Whether the model was sent what its agent began with: its instructions and tools."""
        activity = getattr(self._agent, "_activity", None)
        return bool(getattr(activity, "_started", True)) and live_session(self._agent) is not None

    def _warn_of_text(self, live: llm.RealtimeSession[Any]) -> None:
        """Once: a history is text, and a model may then answer in text alone (agents#2471)."""
        voice = self._agent.tts if is_given(self._agent.tts) else self._session.tts
        if self._warned or voice is not None or not live.capabilities.audio_output:
            return
        self._warned = True
        logger.warning(
            "this call goes on with a history as text, after which some realtime models answer "
            "in text alone, which nobody hears: give the session a voice for that case, "
            "AgentSession(llm=..., tts=...)"
        )

    def _warn_of_late(self) -> None:
        if not self._notes.are_put(self._agent):
            logger.warning(
                "the records were read after the agent had started, and its realtime model takes "
                "neither history nor instructions then: it does not know what was said before. "
                "Make the agent before `ctx.connect()`, or wait in `await agent.stand_by(session)`"
            )


def realtime_model(session: AgentSession[Any], agent: Agent) -> llm.RealtimeModel | None:
    """Return the realtime model of this agent in this session; None if its model is none."""
    model = agent.llm if is_given(agent.llm) else session.llm
    return model if isinstance(model, llm.RealtimeModel) else None


def live_session(agent: Agent) -> llm.RealtimeSession[Any] | None:
    """Return the agent's session with its model; None if there is none (yet)."""
    try:
        return agent.realtime_llm_session
    except RuntimeError:
        return None


def _keep_live(context: llm.ChatContext, live: llm.ChatContext, ours: llm.ChatContext) -> None:
    """Leave alone what the model's side has of its own: its messages have sound, and words of the
    caller that are not transcribed yet are in no context of ours and would be deleted there."""
    known = {item.id for item in ours.items}
    before: str | None = None
    for item in live.items:
        place = context.index_by_id(item.id)
        if place is None and item.id in known:
            continue  # it was taken out: another has its place
        if place is None:
            after = context.index_by_id(before) if before else None
            context.items.insert(len(context.items) if after is None else after + 1, item)
        elif _says_otherwise(item, context.items[place]):
            context.items[place] = item
        before = item.id


def _says_otherwise(live: llm.ChatItem, ours: llm.ChatItem) -> bool:
    if not isinstance(live, llm.ChatMessage) or not isinstance(ours, llm.ChatMessage):
        return False
    return bool(live.content) and live.raw_text_content != ours.raw_text_content
