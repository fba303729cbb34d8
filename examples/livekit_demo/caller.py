"""A caller in a real room: speaks with a voice of espeak-ng, and records all that they hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from livekit import rtc
from livekit.agents.types import TOPIC_TRANSCRIPTION

from .espeak import Espeak, Samples
from .recording import SAMPLE_RATE, Recording

__all__ = ["CALLER", "Caller", "Line", "caller"]

CALLER = "caller"
CONNECT_S = 10.0
FRAME_MS = 20
_FRAME = SAMPLE_RATE * FRAME_MS // 1000
_WAKE_S = 0.02
"""How often a condition is looked at."""


@dataclass(slots=True)
class Line:
    """One piece of speech in writing, as far as it has come; times as in the recording."""

    who: str
    at: float
    text: str = ""
    over: bool = False
    cut: bool = False


@dataclass
class Caller:
    """In the room, with an open microphone. Agents are known by their participant's name."""

    room: rtc.Room
    microphone: rtc.AudioSource
    voice: Espeak
    recording: Recording = field(default_factory=Recording)
    lines: list[Line] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def say(self, text: str) -> None:
        """Say it; done when the last sound is out."""
        line = Line(CALLER, self.recording.now, text)
        self.lines.append(line)
        own = self.recording.track(CALLER, ours=True)
        for frame in _frames(self.voice, text):
            await self.microphone.capture_frame(_sound(frame))
            own.add(self.recording.now, frame)
        await self.microphone.wait_for_playout()
        line.over = True

    async def until(self, check: Callable[[], bool], *, within: float) -> bool:
        """Wait until `check` is true; return whether it was, `within` seconds from now."""
        deadline = self.recording.now + within
        while self.recording.now < deadline:
            if check():
                return True
            await asyncio.sleep(_WAKE_S)
        return check()

    def agents(self) -> list[rtc.RemoteParticipant]:
        """The agents in the room, standbys too."""
        everyone = self.room.remote_participants.values()
        return [one for one in everyone if one.kind == rtc.ParticipantKind.PARTICIPANT_KIND_AGENT]

    def said_by(self, who: str, *, after: float = 0.0) -> str:
        """All that one said, in writing."""
        mine = [line.text for line in self.lines if line.who == who and line.at >= after]
        return " ".join(" ".join(mine).split())

    # --- listening ----------------------------------------------------------------------------

    async def join(self, url: str, token: str) -> None:
        """Enter the room, speaking and listening from now on."""
        self.room.on("track_subscribed", self._subscribed)
        self.room.register_text_stream_handler(TOPIC_TRANSCRIPTION, self._transcribed)
        async with asyncio.timeout(CONNECT_S):
            await self.room.connect(url, token)
            track = rtc.LocalAudioTrack.create_audio_track("microphone", self.microphone)
            source = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
            await self.room.local_participant.publish_track(track, source)

    async def stop_listening(self) -> None:
        """End everything that `join` began; raise what failed of it."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended

    def _subscribed(
        self, track: rtc.Track, _: rtc.RemoteTrackPublication, speaker: rtc.RemoteParticipant
    ) -> None:
        if isinstance(track, rtc.RemoteAudioTrack):
            self._start(self._listen(track, speaker.name))

    async def _listen(self, track: rtc.RemoteAudioTrack, name: str) -> None:
        heard = self.recording.track(name)
        stream = rtc.AudioStream(track, sample_rate=SAMPLE_RATE, num_channels=1)
        try:
            async for event in stream:
                heard.add(self.recording.now, np.frombuffer(event.frame.data, np.int16))
        finally:
            await stream.aclose()

    def _transcribed(self, reader: rtc.TextStreamReader, identity: str) -> None:
        speaker = self.room.remote_participants.get(identity)
        if speaker is not None:  # else it is what an agent understood of the caller
            self._start(self._read(reader, Line(speaker.name, self.recording.now)))

    async def _read(self, reader: rtc.TextStreamReader, line: Line) -> None:
        self.lines.append(line)
        with suppress(rtc.StreamError):  # its agent died in the middle of it
            async for text in reader:
                line.text += text
        line.over = True

    def _start(self, listening: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.create_task(listening))


@asynccontextmanager
async def caller(url: str, token: str, voice: Espeak) -> AsyncIterator[Caller]:
    """Be in the room within this block."""
    async with AsyncExitStack() as stack:
        microphone = rtc.AudioSource(SAMPLE_RATE, 1, queue_size_ms=200)
        stack.push_async_callback(microphone.aclose)
        one = Caller(rtc.Room(), microphone, voice)
        stack.push_async_callback(one.stop_listening)
        stack.push_async_callback(one.room.disconnect)
        await one.join(url, token)
        yield one


def _frames(voice: Espeak, text: str) -> list[Samples]:
    """What is said, and half a second of silence, in frames."""
    speech = voice.speak(text)
    resampler = rtc.AudioResampler(speech.sample_rate, SAMPLE_RATE)
    pieces = [*resampler.push(bytearray(speech.samples.tobytes())), *resampler.flush()]
    samples = np.concatenate([np.frombuffer(piece.data, np.int16) for piece in pieces])
    silence = np.zeros(SAMPLE_RATE // 2 + -len(samples) % _FRAME, np.int16)
    whole = np.concatenate([samples, silence])
    return [whole[at : at + _FRAME] for at in range(0, len(whole), _FRAME)]


def _sound(samples: Samples) -> rtc.AudioFrame:
    return rtc.AudioFrame(samples.tobytes(), SAMPLE_RATE, 1, len(samples))
