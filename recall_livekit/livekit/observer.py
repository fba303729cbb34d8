"""What happens in a session, as records. It listens to the session, not to one agent's hooks."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from livekit.agents import (
    AgentSession,
    AgentStateChangedEvent,
    ConversationItemAddedEvent,
    FunctionToolsExecutedEvent,
    ToolExecutionUpdatedEvent,
    UserInputTranscribedEvent,
    llm,
)

from ..call import Call
from ..errors import RecallError
from .spoken import SpokenText
from .userdata import UserdataKeeper

__all__ = ["SessionObserver"]

logger = logging.getLogger("recall_livekit")

UNDER_WAY = 2.0
"""How long words that became no turn count as speech under way (seconds)."""


class SessionObserver:
    """Records the turns of both sides, what is being said, and the application's state."""

    def __init__(
        self, session: AgentSession[Any], call: Call, userdata: UserdataKeeper[Any]
    ) -> None:
        """Listen from now on."""
        self._session = session
        self._call = call
        self._userdata = userdata
        self._agent = session.current_agent.id
        self._heard: list[str] = []
        self._heard_at: float | None = None
        self._cut = ""
        self.tools_running: set[str] = set()
        """The ids of the tool calls that have begun and not ended."""
        self._failed = 0
        self.news = asyncio.Event()
        """Set at each word of either side; whoever waits for it clears it."""
        self.spoken = SpokenText(self._speaking)
        if not self.spoken.attach(session):
            logger.debug("no transcription output: words under way are not known before the turn")
        session.on("conversation_item_added", self._item_added)
        session.on("user_input_transcribed", self._transcribed)
        session.on("agent_state_changed", self._agent_state_changed)
        session.on("function_tools_executed", self._tools_executed)
        session.on("tool_execution_updated", self._tool_updated)

    @property
    def caller_speaks(self) -> bool:
        """Whether the caller is speaking, or has said words that are not in a turn yet."""
        if self._session.user_state == "speaking":
            return True
        return self._heard_at is not None and time.monotonic() - self._heard_at < UNDER_WAY

    def cut_here(self, words: str) -> None:
        """The turn under way is cut after these words: it is recorded so, whatever LiveKit, which
        adds a word when it has passed, makes of it. "" takes that back."""
        self._cut = words.strip()

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        item = event.item
        if isinstance(item, llm.AgentHandoff):
            # not `session.current_agent`: the last words of the old one are added after it changed
            self._agent = item.new_agent_id
        if isinstance(item, llm.ChatMessage) and item.role in ("user", "assistant"):
            self._turn(item)
            self._userdata.note(self._session, self._call)

    def _turn(self, message: llm.ChatMessage) -> None:
        text = message.text_content
        if message.role == "user":
            self._heard.clear()
            self._heard_at = None
        else:
            self.spoken.begin_turn()
            cut, self._cut = self._cut, ""
            text = cut if cut and message.interrupted else text
        if not text or not self._call.writable:
            return
        try:
            self._call.record_turn(
                "user" if message.role == "user" else "assistant",
                text,
                message_id=message.id,
                agent=self._agent if message.role == "assistant" else None,
                interrupted=message.interrupted,
                at=message.created_at,
            )
        except RecallError as error:
            self._count(error)

    def _count(self, error: RecallError) -> None:
        """Say it once, and again at every hundredth: one line a turn would drown the log."""
        if self._failed % 100 == 0:
            logger.error("a turn was not recorded (%d before it): %s", self._failed, error)
        self._failed += 1

    def _agent_state_changed(self, event: AgentStateChangedEvent) -> None:
        if event.new_state == "listening":
            self.spoken.forget_unheard()

    def _transcribed(self, event: UserInputTranscribedEvent) -> None:
        """Interim text is whole, not a delta; finals add up until the turn is committed."""
        if not event.transcript:
            return
        self._heard_at = time.monotonic()
        self.news.set()
        self._call.partial("user", " ".join([*self._heard, event.transcript]))
        if event.is_final:
            self._heard.append(event.transcript)

    def _speaking(self, text: str) -> None:
        self.news.set()
        self._call.partial("assistant", text)

    def _tool_updated(self, event: ToolExecutionUpdatedEvent) -> None:
        update = event.update
        if update.type == "tool_call_started":
            self.tools_running.add(update.function_call.call_id)
        elif update.type == "tool_call_ended":
            self.tools_running.discard(update.call_id)

    def _tools_executed(self, event: FunctionToolsExecutedEvent) -> None:
        self._userdata.note(self._session, self._call)
