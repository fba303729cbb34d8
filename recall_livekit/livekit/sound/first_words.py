"""Words that are ready to be heard: said to a resumed caller while the model still thinks."""

from __future__ import annotations

import asyncio
import io
import os
import wave
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from livekit import rtc

from ...errors import InvalidSettings

__all__ = ["ResumeAudio", "decoded"]

FRAME_SECONDS = 0.02
LEAD_SECONDS = 0.2
"""How far the frames run ahead of real time: a session that is handed much audio at once blocks
its event loop, for it analyses the rate of speech of all of it."""
LONGEST_SECONDS = 30.0
RATES = range(8_000, 48_001)


class ResumeAudio:
    """A recording of the first words of a resumed call: a WAV of 16 bit PCM, mono or stereo.

    Make it where the worker's module is imported, so that it is read and decoded before there is
    a call::

        SORRY = ResumeAudio("sorry.wav")
        ...
        Support(instructions="Be kind.", resume=ctx.room.name, resume_audio=SORRY)
    """

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        """Decode the file at a path, or the bytes of one.

        Raises:
            InvalidSettings: It cannot be read, is no such WAV, is empty, or is longer than 30 s.
        """
        named = "resume_audio" if isinstance(source, bytes) else f"resume_audio {source}"
        self.sample_rate, self._samples = _read(_content(source, named), named)

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self._samples) / 2 / self.sample_rate

    async def frames(self) -> AsyncIterator[rtc.AudioFrame]:
        """Yield it in frames of 20 ms, at the pace of speech."""
        size = 2 * int(self.sample_rate * FRAME_SECONDS)
        loop = asyncio.get_running_loop()
        began = loop.time() - LEAD_SECONDS
        for start in range(0, len(self._samples), size):
            due = began + start / 2 / self.sample_rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            part = self._samples[start : start + size]
            yield rtc.AudioFrame(part, self.sample_rate, 1, len(part) // 2)


def decoded(source: ResumeAudio | str | os.PathLike[str] | bytes | None) -> ResumeAudio | None:
    """Return what an agent was given, decoded; a file is decoded once a process.

    Raises:
        InvalidSettings: As `ResumeAudio`.
    """
    if source is None or isinstance(source, ResumeAudio):
        return source
    if isinstance(source, bytes):
        return ResumeAudio(source)
    if not isinstance(source, str | os.PathLike):
        raise InvalidSettings(
            f"resume_audio is a path, bytes or a ResumeAudio, not {type(source).__name__}"
        )
    return _of_file(os.fspath(source))


@lru_cache(maxsize=8)
def _of_file(path: str) -> ResumeAudio:
    return ResumeAudio(path)


def _content(source: str | os.PathLike[str] | bytes, named: str) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{named} cannot be read: {error}") from error


def _read(content: bytes, named: str) -> tuple[int, bytes]:
    """Return the sample rate and the samples, one channel of 16 bit."""
    try:
        with wave.open(io.BytesIO(content)) as recording:
            rate, channels = recording.getframerate(), recording.getnchannels()
            width, count = recording.getsampwidth(), recording.getnframes()
            samples = recording.readframes(count)
    except (wave.Error, EOFError) as error:
        raise InvalidSettings(f"{named} is not a WAV of PCM: {error or 'it is cut'}") from error
    if width != 2 or channels not in (1, 2) or rate not in RATES:
        raise InvalidSettings(
            f"{named} has {8 * width} bit, {channels} channels at {rate} Hz; "
            "16 bit, mono or stereo, at 8000 to 48000 Hz is needed"
        )
    samples = samples[: len(samples) // (2 * channels) * 2 * channels]
    if not samples or len(samples) / 2 / channels > LONGEST_SECONDS * rate:
        raise InvalidSettings(f"{named} must be above 0 and at most {LONGEST_SECONDS:.0f} s long")
    return rate, samples if channels == 1 else _mixed(samples)


def _mixed(samples: bytes) -> bytes:
    """Return both channels of a stereo recording as one."""
    both = np.frombuffer(samples, "<i2").reshape(-1, 2)
    return bytes(both.mean(axis=1).astype("<i2"))
