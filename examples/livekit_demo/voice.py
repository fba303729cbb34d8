"""espeak-ng as the voice of a LiveKit session: sentence parts as they come, words with their times.

The audio is handed over at the pace of speech. A voice that hands over much of it at once blocks
the session's event loop, which looks at every frame (the speaking rate): some 15 ms a second.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from livekit.agents import DEFAULT_API_CONNECT_OPTIONS, APIConnectOptions, tts, utils
from livekit.agents.types import TimedString

from recall_livekit.testing.voices import FRAME_MS, Pace

from .espeak import Espeak, Samples

__all__ = ["EspeakTTS"]

_PART = re.compile(r".*?[.?!,:;](?=\s)", re.DOTALL)
"""Up to the next punctuation: what is spoken in one breath."""


class EspeakTTS(tts.TTS[Any]):
    """Speaks with espeak-ng; `lead` seconds of audio run ahead of real time."""

    def __init__(self, voice: Espeak, *, lead: float = 0.2) -> None:
        timed_words = tts.TTSCapabilities(streaming=True, aligned_transcript=True)
        super().__init__(capabilities=timed_words, sample_rate=voice.sample_rate, num_channels=1)
        self.voice = voice
        self.lead = lead

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.SynthesizeStream:
        return _Stream(self, conn_options)


class _Stream(tts.SynthesizeStream):
    def __init__(self, speaker: EspeakTTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=speaker, conn_options=conn_options)
        self._speaker = speaker

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(
            request_id=utils.shortuuid("espeak_"),
            sample_rate=self._speaker.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            frame_size_ms=FRAME_MS,
            stream=True,
        )
        output_emitter.start_segment(segment_id=utils.shortuuid("segment_"))
        pace = Pace(self._speaker.lead)
        async for part in self._parts():
            self._mark_started()
            for word, samples in self._speaker.voice.speak(part).parts():
                output_emitter.push_timed_transcript(self._timed(word, samples, pace.pushed))
                await self._push(samples, pace, output_emitter)
        output_emitter.end_segment()

    async def _push(self, samples: Samples, pace: Pace, output_emitter: tts.AudioEmitter) -> None:
        size = self._speaker.sample_rate * FRAME_MS // 1000
        for start in range(0, len(samples), size):
            frame = samples[start : start + size]
            await pace.wait(len(frame) / self._speaker.sample_rate)
            output_emitter.push(frame.tobytes())

    def _timed(self, word: str, samples: Samples, start: float) -> TimedString:
        end = start + len(samples) / self._speaker.sample_rate
        return TimedString(f"{word} ", start_time=start, end_time=end)

    async def _parts(self) -> AsyncIterator[str]:
        rest = ""
        async for text in self._input_ch:
            rest += text if isinstance(text, str) else " "
            while part := _PART.match(rest):
                yield part[0].strip()
                rest = rest[part.end() :]
        if rest.strip():
            yield rest.strip()
