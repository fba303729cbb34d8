"""A loudspeaker and captions for a session without a room."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.voice import TranscriptSynchronizer, io

from recall_livekit.testing.voices import SAMPLE_RATE

__all__ = ["connect_audio"]


def connect_audio(
    session: AgentSession[None], *, sound: Callable[[], None], word: Callable[[str], None]
) -> None:
    """Play the session's voice in real time: `sound` as it begins, `word` as each is spoken.

    LiveKit's own synchronizer stands between, as in a room, so that what is known of a sentence
    under way is what was spoken of it, not what was generated.
    """
    voice = TranscriptSynchronizer(
        next_in_chain_audio=Loudspeaker(sound), next_in_chain_text=Captions(word)
    )
    session.output.audio = voice.audio_output
    session.output.transcription = voice.text_output


class Loudspeaker(io.AudioOutput):
    """Takes as long to play what it is given as a listener would need to hear it."""

    def __init__(self, sound: Callable[[], None]) -> None:
        super().__init__(
            label="loudspeaker",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=SAMPLE_RATE,
        )
        self._sound = sound
        self._began: float | None = None
        self._seconds = 0.0
        self._end: asyncio.TimerHandle | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if self._began is None:
            self._began = time.monotonic()
            self.on_playback_started(created_at=time.time())
            self._sound()
        self._seconds += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._began is not None and self._end is None:
            left = self._began + self._seconds - time.monotonic()
            self._end = asyncio.get_running_loop().call_later(max(0.0, left), self._finish)

    def clear_buffer(self) -> None:
        if self._began is not None:
            self._finish(interrupted=True)

    def _finish(self, interrupted: bool = False) -> None:
        assert self._began is not None
        if self._end is not None:
            self._end.cancel()
        played = min(self._seconds, time.monotonic() - self._began)
        self._began, self._seconds, self._end = None, 0.0, None
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class Captions(io.TextOutput):
    """Passes words on as they are spoken."""

    def __init__(self, word: Callable[[str], None]) -> None:
        super().__init__(label="captions", next_in_chain=None)
        self._word = word

    async def capture_text(self, text: str) -> None:
        self._word(text)

    def flush(self) -> None:
        """There is nothing to end: each word was passed on."""
