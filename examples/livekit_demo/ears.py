"""Ears for a session without a key: they know a few sentences, and tell them apart by length.

They listen to the caller's real audio. What a recogniser would make of it is replaced by this, the
rest of the demo is not: nothing is heard that did not come through the room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from livekit import rtc
from livekit.agents import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN, APIConnectOptions, stt, utils
from livekit.agents.language import LanguageCode
from livekit.agents.types import NotGivenOr

from .espeak import Espeak

__all__ = ["AUDIBLE_RMS", "LengthSTT", "loudness"]

AUDIBLE_RMS = 150.0
"""RMS of 16 bit samples; speech has 3000, and what a lossy codec makes of silence under 50."""
END_SILENCE_S = 0.45
"""Longer than a pause inside a sentence."""


def loudness(frame: rtc.AudioFrame) -> float:
    """The frame's RMS, of 16 bit samples."""
    samples = np.frombuffer(frame.data, np.int16).astype(np.float64)
    return float(np.sqrt(np.mean(samples**2))) if len(samples) else 0.0


def spoken_seconds(voice: Espeak, text: str) -> float:
    """How long this sentence is from its first sound to its last."""
    loud = np.flatnonzero(np.abs(voice.speak(text).samples) > 2 * AUDIBLE_RMS)
    return float(loud[-1] - loud[0]) / voice.sample_rate


class LengthSTT(stt.STT[Any]):
    """Knows `sentences` in one voice. It ends each turn itself: no VAD is needed."""

    def __init__(self, voice: Espeak, sentences: Sequence[str]) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=False))
        self._lengths = {text: spoken_seconds(voice, text) for text in sentences}

    def nearest(self, seconds: float) -> str:
        """The sentence whose length this is, or nearly is."""
        return min(self._lengths, key=lambda text: abs(self._lengths[text] - seconds))

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> stt.RecognizeStream:
        return _Stream(self, conn_options)

    async def _recognize_impl(
        self,
        buffer: utils.AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        raise NotImplementedError("LengthSTT hears streams only")


class _Stream(stt.RecognizeStream):
    def __init__(self, ears: LengthSTT, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=ears, conn_options=conn_options)
        self._ears = ears

    async def _run(self) -> None:
        heard = quiet = 0.0
        async for frame in self._input_ch:
            if not isinstance(frame, rtc.AudioFrame):
                continue
            audible = loudness(frame) >= AUDIBLE_RMS
            if audible and not heard:
                self._send(stt.SpeechEventType.START_OF_SPEECH)
            if audible or heard:
                heard += frame.duration
            quiet = 0.0 if audible else quiet + frame.duration
            if heard and quiet >= END_SILENCE_S:
                self._send(stt.SpeechEventType.FINAL_TRANSCRIPT, self._ears.nearest(heard - quiet))
                self._send(stt.SpeechEventType.END_OF_SPEECH)
                heard = 0.0

    def _send(self, kind: stt.SpeechEventType, text: str = "") -> None:
        data = stt.SpeechData(language=LanguageCode("en"), text=text, confidence=1.0)
        self._event_ch.send_nowait(stt.SpeechEvent(type=kind, alternatives=[data]))
