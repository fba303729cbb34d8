"""espeak-ng as the voice of a LiveKit session, one breath after the other."""

from __future__ import annotations

import re

from recall_livekit.testing.voices import PacedTTS

from .espeak import Espeak, Samples

__all__ = ["EspeakTTS"]

_PART = re.compile(r".*?[.?!,:;](?=\s)", re.DOTALL)
"""Up to the next punctuation: what is spoken in one breath."""


class EspeakTTS(PacedTTS):
    """Speaks with espeak-ng; `lead` seconds of audio run ahead of real time."""

    def __init__(self, voice: Espeak, *, lead: float = 0.2) -> None:
        super().__init__(lead=lead, sample_rate=voice.sample_rate)
        self.voice = voice

    def cut(self, text: str) -> tuple[list[str], str]:
        """Cut it at the ends of what is spoken in one breath."""
        parts = []
        while found := _PART.match(text):
            parts.append(found[0].strip())
            text = text[found.end() :]
        return parts, text

    def speak(self, part: str) -> list[tuple[str, Samples]]:
        """Make its sound; done when it returns, some milliseconds later."""
        return self.voice.speak(part).parts()
