"""A whole voice pipeline in this process: a session whose sound and words end in a test's ear."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from livekit import rtc
from livekit.agents import Agent, AgentSession, llm
from livekit.agents.voice import TranscriptSynchronizer, io

from recall_livekit.testing.voices import ScriptedLLM, ScriptedSTT, ToneTTS, said

__all__ = ["Line", "Speaker", "echo", "greeted", "until"]


class Speaker(io.AudioOutput):
    """Plays in real time; remembers how much was played, and when the first sound came."""

    def __init__(self) -> None:
        super().__init__(
            label="speaker",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=24_000,
        )
        self.seconds = 0.0
        self.played = 0.0
        self.first_at: float | None = None
        self._began: float | None = None
        self._pushed = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self.on_playback_started(created_at=time.time())
        if self.first_at is None:
            self.first_at = now
        self._pushed += frame.duration
        self.seconds += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._began is not None:
            left = max(0.0, self._began + self._pushed - time.monotonic())
            self._end = asyncio.get_running_loop().call_later(left, self._finish, False)

    def clear_buffer(self) -> None:
        if self._end is not None:
            self._end.cancel()
        if self._began is not None:
            self._finish(True)

    def _finish(self, interrupted: bool) -> None:
        began, pushed = self._began or time.monotonic(), self._pushed
        self._began, self._pushed, self._end = None, 0.0, None
        played = min(pushed, time.monotonic() - began) if interrupted else pushed
        self.played += played
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class Subtitles(io.TextOutput):
    """The words as the caller's application shows them."""

    def __init__(self) -> None:
        super().__init__(label="subtitles", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """Nothing to send."""


def echo(chat_ctx: llm.ChatContext) -> str:
    """Tells the last thing that the user said, or greets."""
    users = said(chat_ctx, "user")
    return f"you said {users[-1]}" if users else "hello there"


class Line:
    """One agent on one line."""

    def __init__(
        self,
        agent: Agent,
        reply: Callable[[llm.ChatContext], Any] = echo,
        *,
        speaker: Speaker | None = None,
    ) -> None:
        self.agent = agent
        self.model = ScriptedLLM(reply)
        self.stt = ScriptedSTT(word_delay=0.02, end_silence=0.05)
        self.speaker = speaker or Speaker()
        self.subtitles = Subtitles()
        self.session: AgentSession[Any] = AgentSession(
            stt=self.stt,
            llm=self.model,
            tts=ToneTTS(word_ms=60),
            vad=None,
            turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.01}},
            aec_warmup_duration=0,
            session_close_transcript_timeout=0.05,
            use_tts_aligned_transcript=True,
        )
        synchronizer = TranscriptSynchronizer(
            next_in_chain_audio=self.speaker, next_in_chain_text=self.subtitles
        )
        self._synchronizer = synchronizer
        self.session.output.audio = synchronizer.audio_output
        self.session.output.transcription = synchronizer.text_output

    @property
    def heard(self) -> bool:
        """Whether any sound came out."""
        return self.speaker.seconds > 0

    @property
    def prompts(self) -> list[list[str]]:
        """The texts of each prompt that the model was given."""
        return [said(prompt) for prompt in self.model.prompts]

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Line]:
        await self.session.start(self.agent)
        try:
            yield self
        finally:
            await self.session.aclose()
            await self._synchronizer.aclose()
            live = getattr(self.agent, "_live", None)
            if live is not None:
                await live.closed()


async def greeted(line: Line) -> None:
    """Return when the agent has said its first words."""
    await until(lambda: "hello there" in line.subtitles.text)
    await until(lambda: line.session.agent_state == "listening")


async def until(check: Callable[[], object], seconds: float = 5.0) -> None:
    """Return when `check` holds; fail after `seconds`."""
    with anyio.fail_after(seconds):
        while not check():  # noqa: ASYNC110
            await anyio.sleep(0.005)
