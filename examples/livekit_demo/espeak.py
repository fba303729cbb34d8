"""Speech without a key: the espeak-ng library of the wheel `espeakng-loader`, through ctypes.

It makes five seconds of speech in some three milliseconds, and tells where each word begins.
"""

from __future__ import annotations

import ctypes as c
import threading
from dataclasses import dataclass
from functools import cache

import espeakng_loader
import numpy as np
import numpy.typing as npt

__all__ = ["Espeak", "Samples", "Speech", "Word"]

Samples = npt.NDArray[np.int16]

# speak_lib.h of espeak-ng 1.52
_SYNCHRONOUS, _DO_NOT_EXIT = 2, 0x8000
_CHARACTERS, _UTF8 = 1, 1
_RATE = 1
_WORD = 1


@dataclass(frozen=True, slots=True)
class Word:
    """A word and the sample at which it begins."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Speech:
    """What was said: 16 bit mono samples, and its words."""

    samples: Samples
    words: tuple[Word, ...]
    sample_rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.sample_rate

    def parts(self) -> list[tuple[str, Samples]]:
        """The words, each with its own samples; a pause belongs to the word before it."""
        starts = [0, *(word.start for word in self.words[1:])]
        ends = [*starts[1:], len(self.samples)]
        pieces = zip(self.words, starts, ends, strict=True) if self.words else []
        return [(word.text, self.samples[start:end]) for word, start, end in pieces]


class _Id(c.Union):
    _fields_ = (("number", c.c_int), ("name", c.c_char_p), ("string", c.c_char * 8))


class _Event(c.Structure):
    _fields_ = (
        ("type", c.c_int),
        ("unique_identifier", c.c_uint),
        ("text_position", c.c_int),  # in characters, from 1
        ("length", c.c_int),
        ("audio_position", c.c_int),  # milliseconds
        ("sample", c.c_int),
        ("user_data", c.c_void_p),
        ("id", _Id),
    )


_Callback = c.CFUNCTYPE(c.c_int, c.POINTER(c.c_short), c.c_int, c.POINTER(_Event))


class _Library:
    """The library: one to a process, for it keeps its voice and its output in globals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sound = bytearray()
        self._starts: list[tuple[int, int, int]] = []
        self._library = c.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, data, _DO_NOT_EXIT)
        self.sample_rate = int(rate)
        if self.sample_rate <= 0:
            raise OSError("espeak-ng does not find its data: install espeakng-loader again")
        self._callback = _Callback(self._take)  # the library keeps no reference to it
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(self, text: str, voice: str, words_a_minute: int) -> Speech:
        with self._lock:
            if self._library.espeak_SetVoiceByName(voice.encode()) != 0:
                raise ValueError(f"espeak-ng has no voice {voice!r}")
            self._library.espeak_SetParameter(_RATE, words_a_minute, 0)
            self._sound, self._starts = bytearray(), []
            said = text.encode()
            self._library.espeak_Synth(said, len(said) + 1, 0, _CHARACTERS, 0, _UTF8, None, None)
            samples = np.frombuffer(bytes(self._sound), np.int16)
            return Speech(samples, _words(text, self._starts), self.sample_rate)

    def _take(self, wave: c._Pointer[c.c_short], count: int, events: c._Pointer[_Event]) -> int:
        if wave and count:
            self._sound += c.string_at(wave, 2 * count)
        index = 0
        while (event := events[index]).type:
            if event.type == _WORD:
                self._starts.append((event.text_position - 1, event.length, event.sample))
            index += 1
        return 0


_library = cache(_Library)


@dataclass(frozen=True, slots=True)
class Espeak:
    """One voice, by espeak-ng's name of it, and its speed."""

    voice: str = "en-us+f3"
    words_a_minute: int = 185

    def speak(self, text: str) -> Speech:
        """Say it; done when it returns, some milliseconds later.

        Raises:
            OSError: The library cannot be loaded.
            ValueError: There is no such voice.
        """
        return _library().speak(text, self.voice, self.words_a_minute)

    @property
    def sample_rate(self) -> int:
        return _library().sample_rate


def _words(text: str, starts: list[tuple[int, int, int]]) -> tuple[Word, ...]:
    """The words as they are written, punctuation included, each where the library says it begins.

    The library may take several written words for one, and one for several: what is not told of
    goes with the word before it.
    """
    cuts = [position for position, _, _ in starts]
    ends = [*cuts[1:], len(text)]
    pieces = zip(starts, ends, strict=True)
    return tuple(Word(text[at:end].strip(), sample) for (at, _, sample), end in pieces)
