"""What happens in a session, as records. It listens to the session, not to one agent's hooks."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from livekit.agents import (
    AgentSession,
    AgentStateChangedEvent,
    CloseEvent,
    ConversationItemAddedEvent,
    FunctionToolsExecutedEvent,
    SpeechCreatedEvent,
    ToolExecutionUpdatedEvent,
    UserInputTranscribedEvent,
    llm,
)

from ...call import Call
from ...errors import RecallError
from ...models import Role
from ..caller_link import CallerLink
from ..unrecorded import Unrecorded
from ..userdata import UserdataKeeper
from .caller_words import CallerWords
from .spoken import SpokenText
from .transcripts import Unfinished, UnfinishedTranscripts

__all__ = ["SessionObserver"]

logger = logging.getLogger("recall_livekit")

NO_ITEM_SECONDS = 1.0
"""How long LiveKit may take to make a turn of what was heard, once the agent listens."""


@dataclass(frozen=True, slots=True)
class _Loose:
    """What was heard of the agent, and is in no turn yet."""

    heard: str
    interrupted: bool
    timer: asyncio.TimerHandle


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
        self._link = CallerLink(session, call)
        self.caller = CallerWords(self._never_committed, self._may_commit)
        self._transcripts = UnfinishedTranscripts(session, self._never_finished)
        self._loose: _Loose | None = None
        self._cut = ""
        self.tools_running: set[str] = set()
        """The ids of the tool calls that have begun and not ended."""
        self._unrecorded = Unrecorded("a turn")
        self.news = asyncio.Event()
        """Set at each word of either side; whoever waits for it clears it."""
        self.spoken = SpokenText(self._speaking, self.news.set)
        if not self.spoken.attach(session):
            logger.debug("no transcription output: words under way are not known before the turn")
        session.on("conversation_item_added", self._item_added)
        session.on("user_input_transcribed", self._transcribed)
        session.on("agent_state_changed", self._agent_state_changed)
        session.on("function_tools_executed", self._tools_executed)
        session.on("tool_execution_updated", self._tool_updated)
        session.on("speech_created", self._speech_created)
        session.on("close", self._closed)

    @property
    def caller_speaks(self) -> bool:
        """Whether the caller is speaking, or has said words that are not in a turn yet."""
        return self._session.user_state == "speaking" or self.caller.under_way

    def cut_here(self, words: str) -> None:
        """The turn under way is cut after these words: it is recorded so, whatever LiveKit, which
        adds a word when it has passed, makes of it. "" takes that back."""
        self._cut = words.strip()

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        item = event.item
        if isinstance(item, llm.AgentHandoff):
            # not `session.current_agent`: the last words of the old one are added after it changed
            self._agent = item.new_agent_id
            self._handed_over(item)
        if isinstance(item, llm.ChatMessage) and item.role in ("user", "assistant"):
            self._turn(item)
            self._userdata.note(self._session, self._call)

    def _turn(self, message: llm.ChatMessage) -> None:
        text, committed = message.text_content, True
        if message.role == "user":
            self.caller.committed(message)
        else:
            committed = self._ends_what_was_heard()
            cut, self._cut = self._cut, ""
            text = cut if cut and message.interrupted else text
        if text:
            self._record(
                "user" if message.role == "user" else "assistant",
                text,
                at=message.created_at,
                message_id=message.id,
                interrupted=message.interrupted,
                committed=committed,
            )

    def _handed_over(self, item: llm.AgentHandoff) -> None:
        """The agent that a session starts with is no handoff: if the call goes on, another may
        have been active, and is to stay so in the records until this one speaks."""
        if item.old_agent_id is None or not self._call.writable:
            return
        try:
            self._call.record_handoff(item.new_agent_id, previous=item.old_agent_id)
        except RecallError as error:
            self._unrecorded.count(error)

    def _ends_what_was_heard(self) -> bool:
        """The agent's turn is there: return whether anything of it was heard."""
        if self._loose is not None:
            self._loose.timer.cancel()
            self._loose = None
            return True
        any_heard = self.spoken.any_heard or self._is_text_alone
        self.spoken.begin_turn()
        return any_heard

    @property
    def _is_text_alone(self) -> bool:
        """Whether the session has neither sound nor shown words, as in `AgentSession.run`: its
        messages are all that there is."""
        output = self._session.output
        return output.audio is None and output.transcription is None

    def _record(
        self,
        role: Role,
        text: str,
        *,
        at: float | None,
        message_id: str | None = None,
        interrupted: bool = False,
        committed: bool = True,
    ) -> None:
        """Record a turn with whose it is: the caller's name is the linked participant's."""
        if not self._call.writable:
            return
        try:
            self._call.record_turn(
                role,
                text,
                name=self._link.name if role == "user" else None,
                message_id=message_id,
                agent=self._agent if role == "assistant" else None,
                interrupted=interrupted,
                committed=committed,
                at=at,
            )
        except RecallError as error:
            self._unrecorded.count(error)

    def _never_committed(self, text: str, at: float) -> None:
        self._record("user", text, at=at, committed=False)

    def _never_finished(self, words: Unfinished) -> None:
        self._record("user", words.text, at=words.at, message_id=words.item_id, interrupted=True)

    def _may_commit(self) -> bool:
        """The caller speaks on, or the application itself says when a turn ends."""
        return self._session.user_state == "speaking" or self._session.turn_detection == "manual"

    def _agent_state_changed(self, event: AgentStateChangedEvent) -> None:
        speech = self._session.current_speech
        begins = event.old_state != "speaking" and speech is not None and not speech.done()
        if event.new_state != "listening" or begins:
            return  # `session.start` ends so, though a reply of `on_enter` may have begun
        self.spoken.forget_unheard()
        if self.spoken.any_heard:
            self._no_item_came()
            timer = asyncio.get_running_loop().call_later(NO_ITEM_SECONDS, self._no_item_came)
            self._loose = _Loose(self.spoken.heard, self.spoken.was_interrupted, timer)
            self.spoken.begin_turn()

    def _no_item_came(self) -> None:
        """LiveKit made no turn of what was heard: it lost what was interrupted (agents#5038), or
        the application wanted none (`say(add_to_chat_ctx=False)`)."""
        loose, self._loose = self._loose, None
        if loose is None:
            return
        loose.timer.cancel()
        if loose.interrupted and loose.heard.strip():
            self._record("assistant", loose.heard, at=None, interrupted=True)
        elif not self.spoken.heard:
            self._call.partial("assistant", "")

    def _speech_created(self, event: SpeechCreatedEvent) -> None:
        self.spoken.attach(self._session)  # an avatar may have replaced the outputs

    def _closed(self, event: CloseEvent) -> None:
        self.caller.close()
        self._link.close()
        self._no_item_came()

    def _transcribed(self, event: UserInputTranscribedEvent) -> None:
        if event.transcript:
            words = self.caller.hear(event)
            self.news.set()
            self._call.partial("user", words)

    def _speaking(self, text: str) -> None:
        self._call.partial("assistant", text)

    def _tool_updated(self, event: ToolExecutionUpdatedEvent) -> None:
        update = event.update
        if update.type == "tool_call_started":
            self.tools_running.add(update.function_call.call_id)
        elif update.type == "tool_call_ended":
            self.tools_running.discard(update.call_id)

    def _tools_executed(self, event: FunctionToolsExecutedEvent) -> None:
        self._userdata.note(self._session, self._call)
