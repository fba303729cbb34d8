"""A realtime model of any capabilities, in this process; it says when it is used against them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from livekit import rtc
from livekit.agents import NOT_GIVEN, NotGivenOr, llm, utils

from recall_livekit.testing.voices import tones

__all__ = ["FakeRealtime", "FakeRealtimeSession"]


class FakeRealtime(llm.RealtimeModel):
    """`mutable` is what may be changed after the start; a model that takes no history then takes
    one for what the caller says now, as some do."""

    def __init__(
        self,
        *mutable: Literal["history", "instructions", "tools"],
    ) -> None:
        super().__init__(
            capabilities=llm.RealtimeCapabilities(
                message_truncation=False,
                turn_detection=True,
                user_transcription=True,
                auto_tool_reply_generation=False,
                audio_output=True,
                manual_function_calls=False,
                mutable_chat_context="history" in mutable,
                mutable_instructions="instructions" in mutable,
                mutable_tools="tools" in mutable,
            )
        )
        self.lives: list[FakeRealtimeSession] = []

    @property
    def live(self) -> FakeRealtimeSession:
        """The newest session."""
        return self.lives[-1]

    def session(self, *, turn_detection_disabled: bool = False) -> FakeRealtimeSession:
        self.lives.append(FakeRealtimeSession(self))
        return self.lives[-1]

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class Said:
    """What the model knew when it spoke."""

    instructions: str
    history: list[tuple[str, str]]


class FakeRealtimeSession(llm.RealtimeSession[Literal["none"]]):
    def __init__(self, model: FakeRealtime) -> None:
        super().__init__(model)
        self._context = llm.ChatContext.empty()
        self._tools = llm.ToolContext.empty()
        self._began = False
        self.instructions = ""
        self.taken_for_live: list[str] = []
        """Texts of a history that the model took for what the caller says."""
        self.refused: list[str] = []
        """Changes that the model does not take after its start."""
        self.said: list[Said] = []

    def user_says(self, text: str) -> None:
        """The caller says something, which the model hears, transcribes, and answers."""
        item_id = utils.shortuuid("item_")
        self.emit("input_speech_started", llm.InputSpeechStartedEvent())
        self.emit("input_speech_stopped", llm.InputSpeechStoppedEvent(True))
        self._context.items.append(llm.ChatMessage(id=item_id, role="user", content=[text]))
        self.emit(
            "input_audio_transcription_completed",
            llm.InputTranscriptionCompleted(item_id=item_id, transcript=text, is_final=True),
        )
        self.emit("generation_created", self._generation(user_initiated=False))

    # ---- what livekit-agents asks

    @property
    def chat_ctx(self) -> llm.ChatContext:
        return self._context.copy()

    @property
    def tools(self) -> llm.ToolContext:
        return self._tools.copy()

    async def update_instructions(self, instructions: str) -> None:
        if self._began and not self.capabilities.mutable_instructions:
            self.refused.append("instructions")
        else:
            self.instructions = instructions

    async def update_chat_ctx(self, chat_ctx: llm.ChatContext) -> None:
        new = [item for item in chat_ctx.items if self._context.get_by_id(item.id) is None]
        if not self.capabilities.mutable_chat_context:
            self.taken_for_live += [
                item.text_content or ""
                for item in new
                if isinstance(item, llm.ChatMessage) and item.role in ("user", "assistant")
            ]
        self._context = chat_ctx.copy()

    async def update_tools(self, tools: list[llm.Tool]) -> None:
        await asyncio.sleep(0.01)
        self._began = True  # the last that a session is sent as it begins
        self._tools = llm.ToolContext(tools)

    def update_options(self, *, tool_choice: NotGivenOr[llm.ToolChoice | None] = NOT_GIVEN) -> None:
        """It has none."""

    def generate_reply(
        self,
        *,
        instructions: NotGivenOr[str] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        tools: NotGivenOr[list[llm.Tool]] = NOT_GIVEN,
    ) -> asyncio.Future[llm.GenerationCreatedEvent]:
        created = asyncio.get_running_loop().create_future()
        created.set_result(self._generation(user_initiated=True))
        return created

    def push_audio(self, frame: rtc.AudioFrame) -> None:
        """It hears by `user_says`."""

    def push_video(self, frame: rtc.VideoFrame) -> None:
        """It does not see."""

    def commit_audio(self) -> None:
        """It hears by `user_says`."""

    def clear_audio(self) -> None:
        """It hears by `user_says`."""

    def interrupt(self) -> None:
        """It has said all at once."""

    def truncate(self, **options: Any) -> None:
        """It cannot."""

    async def aclose(self) -> None:
        """Nothing is open."""

    def _generation(self, *, user_initiated: bool) -> llm.GenerationCreatedEvent:
        history: list[tuple[str, str]] = [
            (item.role, item.text_content or "")
            if isinstance(item, llm.ChatMessage)
            else (item.type, getattr(item, "arguments", getattr(item, "output", "")))
            for item in self._context.items
            if item.type in ("message", "function_call", "function_call_output")
        ]
        self.said.append(Said(self.instructions, history))
        text, message_id = "hello there", utils.shortuuid("item_")
        spoken = llm.ChatMessage(id=message_id, role="assistant", content=[text])
        self._context.items.append(spoken)
        modalities: asyncio.Future[list[Literal["text", "audio"]]]
        modalities = asyncio.get_running_loop().create_future()
        modalities.set_result(["audio", "text"])
        message = llm.MessageGeneration(message_id, _each(text), _each(*tones(text)), modalities)
        return llm.GenerationCreatedEvent(_each(message), _each(), user_initiated)


async def _each(*parts: Any) -> AsyncIterator[Any]:
    for part in parts:
        yield part
