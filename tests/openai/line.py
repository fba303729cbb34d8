"""A voice agent of the real OpenAI classes, its sound and words ending in a test's ear."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from livekit.agents import Agent, AgentSession, llm, tts
from livekit.agents.types import NOT_GIVEN, NotGivenOr
from livekit.agents.utils import http_context
from livekit.agents.voice import TranscriptSynchronizer
from livekit.plugins import openai

from recall_livekit.testing.voices import ScriptedSTT, ToneTTS

from ..livekit.line import Speaker, Subtitles
from .server import OpenAIServer

__all__ = ["OpenAILine", "chat_model", "open_line", "realtime_model", "responses_model"]

KEY = "sk-test"


def chat_model(server: OpenAIServer) -> llm.LLM[Any]:
    return openai.LLM(model="gpt-4.1", base_url=server.url, api_key=KEY)


def responses_model(server: OpenAIServer, *, websocket: bool) -> llm.LLM[Any]:
    url = server.url + ("/responses" if websocket else "")
    return openai.responses.LLM(model="gpt-4.1", base_url=url, api_key=KEY, use_websocket=websocket)


def realtime_model(server: OpenAIServer, **options: Any) -> llm.RealtimeModel:
    return openai.realtime.RealtimeModel(base_url=server.url, api_key=KEY, **options)


@dataclass
class OpenAILine:
    """One agent on one line: what it says is heard and shown."""

    session: AgentSession[Any]
    stt: ScriptedSTT
    speaker: Speaker
    subtitles: Subtitles


@asynccontextmanager
async def open_line(
    agent: Agent,
    model: llm.LLM[Any] | llm.RealtimeModel,
    *,
    voice: NotGivenOr[tts.TTS[Any]] = NOT_GIVEN,
) -> AsyncIterator[OpenAILine]:
    """Start a session within this block. A realtime model hears by `Live.user_says` and speaks
    by itself, or by `voice` if it answers in text; any other hears by `stt.say`."""
    stt = ScriptedSTT(word_delay=0.01, end_silence=0.05)
    session = (
        _realtime(model, voice) if isinstance(model, llm.RealtimeModel) else _spoken(model, stt)
    )
    line = OpenAILine(session, stt, Speaker(), Subtitles())
    ends = TranscriptSynchronizer(
        next_in_chain_audio=line.speaker, next_in_chain_text=line.subtitles
    )
    session.output.audio, session.output.transcription = ends.audio_output, ends.text_output
    async with http_context.open():
        try:
            await session.start(agent)
            yield line
        finally:
            await session.aclose()
            await ends.aclose()
            await model.aclose()
            if (live := getattr(agent, "_live", None)) is not None:
                await live.closed()


def _realtime(model: llm.RealtimeModel, voice: NotGivenOr[tts.TTS[Any]]) -> AgentSession[Any]:
    return AgentSession(
        llm=model, tts=voice, vad=None, aec_warmup_duration=0,
        session_close_transcript_timeout=0.05,
    )  # fmt: skip


def _spoken(model: llm.LLM[Any], stt: ScriptedSTT) -> AgentSession[Any]:
    return AgentSession(
        stt=stt,
        llm=model,
        tts=ToneTTS(word_ms=60),
        vad=None,
        turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.01}},
        aec_warmup_duration=0,
        session_close_transcript_timeout=0.05,
    )
