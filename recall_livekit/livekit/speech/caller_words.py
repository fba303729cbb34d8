"""What the caller said until it is in a turn, and what of it never is.

LiveKit adds no message for words that an application's hook stopped (`StopResponse`), failed on, or
that were said while the agent could not be interrupted. They were said all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from livekit.agents import UserInputTranscribedEvent, llm

from .markup import bare

__all__ = ["CallerWords", "Said"]

UNDER_WAY = 2.0
"""How long words that became no turn count as speech under way (seconds)."""
UNCOMMITTED_AFTER = 10.0
"""How long words may take to become a turn while the caller is silent (seconds). A hook that takes
longer still makes a turn of them: they are then recorded twice, first as what they were."""
MOST = 200
"""The most pieces of speech that wait to become a turn; the oldest is recorded then."""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of speech that the recogniser will not change any more."""

    text: str
    at: float
    item_id: str | None = None


class CallerWords:
    """Gathers final transcripts until a message has them."""

    def __init__(
        self, never_committed: Callable[[str, float], None], is_open: Callable[[], bool]
    ) -> None:
        """`never_committed` is told what became no turn, and when it was said; `is_open` says
        that words may still become one, however long they take."""
        self._never_committed = never_committed
        self._is_open = is_open
        self._said: list[Said] = []
        self._late: asyncio.TimerHandle | None = None
        self.heard_at: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether words were heard just now that are not in a turn yet."""
        return self.heard_at is not None and time.monotonic() - self.heard_at < UNDER_WAY

    def hear(self, event: UserInputTranscribedEvent) -> str:
        """Return all that was said since the last turn. Interim text is whole, not a delta."""
        self.heard_at = time.monotonic()
        words = " ".join([*(said.text for said in self._said), event.transcript])
        if event.is_final:
            self._said.append(Said(event.transcript, event.created_at, event.item_id))
            self._tell(self._said[:-MOST])
            del self._said[:-MOST]
        self._wait()
        return words

    def committed(self, message: llm.ChatMessage) -> None:
        """A message has what was said, but for what was said before and is not in it."""
        mine = _parts_of(message, self._said)
        if mine is None:
            return
        oldest = min(mine, default=0)
        self._tell(self._said[:oldest])
        self._said = [said for n, said in enumerate(self._said) if n > oldest and n not in mine]
        self.heard_at = None

    def close(self) -> None:
        """Nothing becomes a turn any more."""
        if self._late is not None:
            self._late.cancel()
        self._tell(self._said)
        self._said = []

    def _tell(self, parts: list[Said]) -> None:
        if parts:
            self._never_committed(" ".join(said.text for said in parts), parts[0].at)

    def _wait(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = asyncio.get_running_loop().call_later(UNCOMMITTED_AFTER, self._too_late)

    def _too_late(self) -> None:
        self._late = None
        if self._said and self._is_open():
            self._wait()
        else:
            self.close()


def _parts_of(message: llm.ChatMessage, said: list[Said]) -> set[int] | None:
    """Return which pieces of speech are in the message; None if it is no speech at all.

    A message has the newest pieces, in their order. A hook may have changed its text beyond
    recognition: then it has them all.
    """
    by_id = {n for n, one in enumerate(said) if one.item_id == message.id}
    if by_id:
        return by_id
    text = bare(message.text_content or "")
    for holds in (str.endswith, str.__contains__):
        if found := _newest_in(text, said, holds):
            return found
    return set(range(len(said))) if not said or _was_spoken(message) else None


def _newest_in(text: str, said: list[Said], holds: Callable[[str, str], bool]) -> set[int]:
    """Return the newest run of pieces that are in the text; later ones may have been said since,
    while a slow hook had it."""
    found = set[int]()
    for n in reversed(range(len(said))):
        piece = bare(said[n].text)
        if (text.rfind(piece) >= 0) if found else holds(text, piece):
            found.add(n)
            text = text[: text.rfind(piece)]
        elif found:
            break
    return found


def _was_spoken(message: llm.ChatMessage) -> bool:
    """Whether LiveKit made the message of speech: what is typed has no measures of it."""
    return message.transcript_confidence is not None or bool(message.metrics)
