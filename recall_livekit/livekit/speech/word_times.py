"""When the words of a segment end: as the voice tells it, or as the synchronizer shows them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["ShownWords", "SpokenWords"]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the voice's text: its place in seconds, and the letters up to its end."""

    start: float | None
    end: float | None
    before: int
    after: int
    one_word: bool


class SpokenWords:
    """The words of one segment with their times in its sound, as far as the voice tells them.

    Some voices tell the times of words, some only when a sentence begins, most nothing: what is
    certain are bounds.
    """

    def __init__(self) -> None:
        """Know no word."""
        self._pieces: list[_Piece] = []
        self.text = ""

    def add(self, text: str, start: float | None, end: float | None, letters: int) -> None:
        """The text goes on with this piece; `letters` are those up to its end."""
        before = self.count
        one_word = len(text.split()) <= 1
        self.text += text
        self._pieces.append(_Piece(start, end, before, max(before, letters), one_word))

    @property
    def count(self) -> int:
        """How many letters the words have, as they were told."""
        return self._pieces[-1].after if self._pieces else 0

    @property
    def is_timed(self) -> bool:
        """Whether the voice told any time."""
        return any(piece.start is not None or piece.end is not None for piece in self._pieces)

    def bounds(self, position: float) -> tuple[int, float]:
        """Return how many letters were heard at least, and at most, at this place in the sound.

        A word counts once it has ended.
        """
        least, most = 0, math.inf
        for piece, following in pairwise([*self._pieces, _Piece(None, None, 0, 0, True)]):
            end = piece.end if piece.end is not None else following.start
            if end is not None and end <= position:
                least = piece.after
                continue
            begins = piece.start is not None and piece.start > position
            if begins or (end is not None and piece.one_word):
                most = piece.before
                break
        return least, max(least, most)

    def next_end(self, position: float) -> float | None:
        """Return where in the sound the next piece ends; None if that is not known."""
        ends = (piece.end for piece in self._pieces if piece.end is not None)
        return next((end for end in ends if end > position), None)


class ShownWords:
    """The words of one segment as the synchronizer shows them. It shows a word somewhere in its
    middle, or a little before: one is over when the next is shown."""

    def __init__(self) -> None:
        """Nothing is shown."""
        self.text = ""
        self._ends: list[tuple[float, int]] = []

    def add(self, text: str, elapsed: float, letters: int) -> None:
        """A word is shown so many seconds after the sound began; `letters` are those before it."""
        self.text += text
        self._ends.append((elapsed, letters))

    def heard(self, position: float) -> int:
        """Return how many letters belong to words that are over at this place in the sound."""
        return max((letters for end, letters in self._ends if end <= position), default=0)
