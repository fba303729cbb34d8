"""What the caller hears and says, as it reaches their ear: sound, loudness, silence, a WAV."""

from __future__ import annotations

import time
import wave
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .ears import AUDIBLE_RMS
from .espeak import Samples

__all__ = ["SAMPLE_RATE", "SLOT_S", "Levels", "Recording", "Track"]

Levels = npt.NDArray[np.float64]

SAMPLE_RATE = 24_000
SLOT_S = 0.01
"""The loudness is kept for each hundredth of a second."""
_SLOT = round(SAMPLE_RATE * SLOT_S)
_LONGEST_S = 120
_LATE_S = 0.25
"""Sound that comes this much later than it should begins anew; before that it was only held up."""
_NEAR, _FAR = 0.75, 0.3
"""How loud a voice is on its own side of the stereo picture, and on the other."""


class Track:
    """One voice. Times are seconds from the beginning of its recording."""

    def __init__(self, name: str, *, ours: bool = False) -> None:
        self.name = name
        self.ours = ours
        self.samples: Samples = np.zeros(_LONGEST_S * SAMPLE_RATE, np.int16)
        self._levels: Levels = np.zeros(len(self.samples) // _SLOT)
        self._end: int | None = None

    def add(self, at: float, samples: Samples) -> None:
        """Add what ends at `at`; frames follow each other without a seam."""
        begins = int(at * SAMPLE_RATE) - len(samples)
        if self._end is None or begins - self._end > _LATE_S * SAMPLE_RATE:
            self._end = max(begins, 0)
        start, end = self._end, min(self._end + len(samples), len(self.samples))
        self.samples[start:end] = samples[: end - start]
        self._end = end
        self._measure(start // _SLOT, end // _SLOT)

    def levels(self) -> Levels:
        """The RMS of each slot, up to the newest."""
        newest: Levels = self._levels[: (self._end or 0) // _SLOT]
        return newest

    def _measure(self, first: int, end: int) -> None:
        parts = self.samples[first * _SLOT : end * _SLOT].astype(np.float64)
        self._levels[first:end] = np.sqrt(np.mean(parts.reshape(-1, _SLOT) ** 2, axis=1))

    def audible(self, *, after: float = 0.0) -> Levels:
        """When each audible slot begins, oldest first."""
        first = max(0, int(after / SLOT_S))
        slots = first + np.flatnonzero(self.levels()[first:] >= AUDIBLE_RMS)
        return np.asarray(slots * SLOT_S, np.float64)

    def last_sound(self) -> float | None:
        """When the voice was last audible."""
        audible = self.audible()
        return float(audible[-1]) + SLOT_S if len(audible) else None

    def first_sound(self, *, after: float) -> float | None:
        """When the voice was first audible from `after` on."""
        audible = self.audible(after=after)
        return float(audible[0]) if len(audible) else None


class Recording:
    """All voices of one call, on one clock."""

    def __init__(self) -> None:
        self.began_at = time.monotonic()
        self.tracks: dict[str, Track] = {}

    @property
    def now(self) -> float:
        """Seconds from the beginning."""
        return time.monotonic() - self.began_at

    def track(self, name: str, *, ours: bool = False) -> Track:
        """The voice of this name; it is added if it is new."""
        return self.tracks.setdefault(name, Track(name, ours=ours))

    def voices(self) -> list[Track]:
        """The voices that the caller hears."""
        return [track for track in self.tracks.values() if not track.ours]

    def write(self, path: Path) -> None:
        """Write it as a stereo WAV: the caller from the left, agents from the right."""
        length = int(self.now * SAMPLE_RATE)
        left = _mixed(self.tracks.values(), length, ours=_NEAR, theirs=_FAR)
        right = _mixed(self.tracks.values(), length, ours=_FAR, theirs=_NEAR)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(SAMPLE_RATE)
            file.writeframes(np.stack([left, right], axis=1).tobytes())


def _mixed(tracks: Iterable[Track], length: int, *, ours: float, theirs: float) -> Samples:
    total = np.zeros(length, np.float64)
    for track in tracks:
        total += track.samples[:length] * (ours if track.ours else theirs)
    return np.clip(total, -32768, 32767).astype(np.int16)
