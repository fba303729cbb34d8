"""What the caller said that a realtime model had not finished to transcribe when it was left.

A handoff to an agent with a model of its own ends the session that transcribes, and with it the
words that made the first agent hand over (agents#4106). Those that it had told so far are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from livekit.agents import (
    AgentSession,
    CloseEvent,
    ConversationItemAddedEvent,
    UserInputTranscribedEvent,
    llm,
)

from ..seeds.realtime import live_session

__all__ = ["Unfinished", "UnfinishedTranscripts"]

SETTLED_AFTER = 1.0
"""How long after a handoff it is looked whether the old model's session goes on (seconds)."""
MOST = 20
"""The most transcripts that are waited for; the oldest is forgotten then."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The words so far of one turn of the caller, and who transcribes them."""

    item_id: str
    text: str
    at: float
    live: llm.RealtimeSession[Any]


class UnfinishedTranscripts:
    """Waits for the ends of a realtime model's transcripts, or tells that one has none."""

    def __init__(self, session: AgentSession[Any], tell: Callable[[Unfinished], None]) -> None:
        """Listen from now on; `tell` what will never be finished."""
        self._session = session
        self._tell = tell
        self._open: dict[str, Unfinished] = {}
        self._look: asyncio.TimerHandle | None = None
        session.on("user_input_transcribed", self._transcribed)
        session.on("conversation_item_added", self._item_added)
        session.on("close", self._closed)

    @property
    def _live(self) -> llm.RealtimeSession[Any] | None:
        try:
            return live_session(self._session.current_agent)
        except RuntimeError:
            return None  # the session has no agent any more

    def _transcribed(self, event: UserInputTranscribedEvent) -> None:
        live = self._live if event.item_id is not None else None
        if event.item_id is None or live is None:
            return
        was = self._open.pop(event.item_id, None)
        if event.is_final or not event.transcript:
            return
        at = was.at if was else event.created_at
        self._open[event.item_id] = Unfinished(event.item_id, event.transcript, at, live)
        if len(self._open) > MOST:
            del self._open[next(iter(self._open))]

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        self._open.pop(getattr(event.item, "id", ""), None)
        if event.item.type == "agent_handoff" and self._open and self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(SETTLED_AFTER, self._handed_over)

    def _handed_over(self) -> None:
        self._look = None
        live = self._live
        for unfinished in [one for one in self._open.values() if one.live is not live]:
            del self._open[unfinished.item_id]
            self._tell(unfinished)

    def _closed(self, event: CloseEvent) -> None:
        """What is still open is speech under way, as it would be with any other model."""
        if self._look is not None:
            self._look.cancel()
            self._handed_over()
