"""Where sentences end: in the words, and, where the voice tells its words' times, in the sound."""

from __future__ import annotations

import re
import time
from collections import deque

from livekit.agents.voice import io

__all__ = ["SentenceTimes", "ends_sentence"]

_END = re.compile(r"[.!?…。！？][\"'”’»」』)\]]*\s*$")
_COMPLETE = re.compile(r"([。！？]|[.!?…][\"'”’»」』)\]]*\s)\s*$")
"""One after which the next piece of text cannot change that: "7." may become "7.30"."""


def ends_sentence(text: str) -> bool:
    """Whether the last word of the text is the last one of a sentence."""
    return _END.search(text) is not None


class SentenceTimes:
    """The ends of the sentences in a turn's sound, for voices that align their words (LiveKit's
    `use_tts_aligned_transcript`). A segment is what is played in one go."""

    def __init__(self) -> None:
        """Know nothing."""
        self._segments: deque[list[tuple[float, str]]] = deque([[]])
        self._open = True
        self._began: float | None = None

    def add(self, piece: str, turn: str) -> None:
        """The turn's text is longer by this piece now; it may say when its sound ends."""
        if not self._open:
            self._segments.append([])
            self._open = True
        end = getattr(piece, "end_time", None)
        if isinstance(end, float | int) and _COMPLETE.search(turn):
            self._segments[-1].append((float(end), turn))

    def flush(self) -> None:
        """The segment's text is complete."""
        self._open = False

    def playback_started(self, event: io.PlaybackStartedEvent) -> None:
        """The next segment's sound begins."""
        if self._began is not None and len(self._segments) > 1:
            self._segments.popleft()
        self._began = event.created_at

    def clear(self) -> None:
        """The turn is recorded."""
        self._segments = deque([[]])
        self._open, self._began = True, None

    def next_end(self) -> tuple[float, str] | None:
        """Return how many seconds from now the sentence under way ends, and the turn's text up to
        there; None if that is not known."""
        if self._began is None:
            return None
        played = time.time() - self._began
        return next(((end - played, text) for end, text in self._segments[0] if end > played), None)
