"""The agent's words as they are spoken, read off behind the transcript synchronizer."""

from __future__ import annotations

import time
from collections.abc import Callable

from livekit.agents import AgentSession
from livekit.agents.voice import io

from .sentences import SentenceTimes, ends_sentence

__all__ = ["SpokenText"]

WORD_TAIL = (0.1, 0.35)
"""How long the end of a word may take at least and at most (seconds). After a sentence comes a
pause, so that a little too much is not heard."""
TAIL = 0.75
"""The same as a part of the time between two words."""


class SpokenText:
    """Gathers what the session's last text output is given: words in step with the voice.

    Text is generated long before it is heard; only this end of the chain knows what was said.
    """

    def __init__(self, spoken: Callable[[str], None]) -> None:
        """Call `spoken` with all words of the turn so far, at each new one."""
        self._spoken = spoken
        self._text = ""
        self._generated = ""
        self._segment_open = False
        self._word_at = 0.0
        self._pace = 0.0
        self.times = SentenceTimes()
        self._segment_recorded = False

    def attach(self, session: AgentSession[object]) -> bool:
        """Listen to the session's output; False if it has none that could be listened to."""
        leaf = session.output.transcription
        if leaf is None:
            return False
        self._listen_to_generated(leaf)
        sound = getattr(session.output, "audio", None)
        if sound is not None:
            sound.on("playback_started", self.times.playback_started)
        while leaf.next_in_chain is not None and not _is_room_output(leaf):
            leaf = leaf.next_in_chain
        self._listen(leaf)
        return True

    @property
    def text(self) -> str:
        """All words of the turn so far; the last one may be under way."""
        return self._text

    def goes_on(self, after: str) -> bool:
        """Whether more was generated than these words of the turn."""
        return len("".join(self._generated.split())) > len("".join(after.split()))

    @property
    def sentence_left(self) -> float | None:
        """The seconds that the last word, which ends a sentence, may still take; None if it ends
        none, or did so too long ago. A word is told somewhere in its middle."""
        low, high = WORD_TAIL
        left = self._word_at + min(high, max(low, TAIL * self._pace)) - time.monotonic()
        return left if left > 0 and ends_sentence(self._text) else None

    def forget_unheard(self) -> None:
        """The agent listens: what was generated and makes no turn is not part of the next."""
        self._generated = ""
        self.times.clear()

    def begin_turn(self) -> None:
        """The words so far are in a recorded turn, and so are those that its segment still owes:
        the last ones come after the turn."""
        self._text = ""
        self.forget_unheard()
        self._segment_recorded = self._segment_open

    def _listen_to_generated(self, head: io.TextOutput) -> None:
        capture, flush = head.capture_text, head.flush

        async def generated(text: str) -> None:
            self._generated += text
            self.times.add(text, self._generated)
            await capture(text)

        def flushed() -> None:
            self.times.flush()
            flush()

        head.capture_text = generated  # type: ignore[method-assign]
        head.flush = flushed  # type: ignore[method-assign]

    def _listen(self, leaf: io.TextOutput) -> None:
        capture, flush = leaf.capture_text, leaf.flush

        async def captured(text: str) -> None:
            self._segment_open = True
            if not self._segment_recorded:
                self._text += text
                if text.strip():
                    now = time.monotonic()
                    self._pace, self._word_at = now - self._word_at, now
                self._spoken(self._text)
            await capture(text)

        def flushed() -> None:
            self._segment_open = self._segment_recorded = False
            flush()

        leaf.capture_text = captured  # type: ignore[method-assign]
        leaf.flush = flushed  # type: ignore[method-assign]


def _is_room_output(output: io.TextOutput) -> bool:
    """RoomIO's own end; what an application chains behind it may be slow or drop words."""
    return "Participant" in type(output).__name__
