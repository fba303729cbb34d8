"""The agent's words as they are spoken: what the caller has heard of a turn, and what is shown.

Text is generated long before it is heard, and what the transcript synchronizer shows can lead what
is heard by a word, more where the voice is slow or its sound comes late. So words are counted as
heard by the place in the sound (`Playhead`): at their ends where the voice tells the times of its
words, and else when the synchronizer shows the next one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.voice import io

from ..sound.gate import AudioGate
from .markup import bare, letters, said_part, visible
from .playhead import Playhead
from .sentences import SentenceTimes, ends_sentence
from .word_times import ShownWords, SpokenWords

__all__ = ["SpokenText"]

logger = logging.getLogger("recall_livekit")
_T = TypeVar("_T")

WORD_TAIL = (0.1, 0.35)
"""How long the end of a word may take at least and at most (seconds). After a sentence comes a
pause, so that a little too much is not heard."""
TAIL = 0.75
"""The same as a part of the time between two words."""
LOOK_SECONDS = (0.02, 0.1)
"""How soon, and how late, is looked again at what was heard while a segment is played."""
TIMED = "lk.timed_transcripts"
"""Where livekit-agents puts the voice's words beside its sound (`USERDATA_TIMED_TRANSCRIPT`)."""


class SpokenText:
    """Follows a session's outputs, one segment after the other."""

    def __init__(
        self, heard: Callable[[str], None], shown: Callable[[], None] = lambda: None
    ) -> None:
        """Call `heard` with all words of the turn that were heard so far, whenever there are
        more, and `shown` at each word that is shown."""
        self._tell_heard = heard
        self._tell_shown = shown
        self.playhead = Playhead(partial(self._safely, self._frame), self._finished)
        self.times = SentenceTimes()
        self._session: AgentSession[Any] | None = None
        self._faulty = False
        self._look: asyncio.TimerHandle | None = None
        self._segment_open = self._segment_recorded = self._segment_over = False
        self._word_at = self._pace = 0.0
        self._forget_turn()
        self._forget_segment()

    def _forget_turn(self) -> None:
        self._text = self._before = self._told = self._generated = ""
        self._begun = False
        self.was_interrupted = False
        """Whether a segment of the turn was cut before its end."""

    def _forget_segment(self) -> None:
        self._segment = ""
        self._complete = False
        self._timed, self._beside, self._shown = SpokenWords(), SpokenWords(), ShownWords()

    # --- following ----------------------------------------------------------------------------

    def attach(self, session: AgentSession[Any]) -> bool:
        """Listen to the session's outputs, those that are new; False if it shows no words."""
        self._session = session
        sound = getattr(session.output, "audio", None)
        while isinstance(sound, AudioGate):
            sound = sound.next_in_chain
        if isinstance(sound, io.AudioOutput):
            self._listen_to_sound(sound)
        head = session.output.transcription
        if head is None:
            return False
        leaf = head
        while leaf.next_in_chain is not None and not _is_room_output(leaf):
            leaf = leaf.next_in_chain
        if not getattr(leaf, "heard_by_recall", False):
            self._listen_to_generated(head)
            self._listen(leaf)
        return True

    def _listen_to_sound(self, sound: io.AudioOutput) -> None:
        chain: io.AudioOutput | None = sound
        while chain is not None:
            if getattr(chain, "heard_by_recall", False):
                return
            chain = chain.next_in_chain
        sound.heard_by_recall = True  # type: ignore[attr-defined]
        sound.on("playback_started", self.times.playback_started)
        self.playhead.follow(sound)
        sound.on("playback_started", self._started)

    def _listen_to_generated(self, head: io.TextOutput) -> None:
        capture, flush = head.capture_text, head.flush

        async def generated(text: str) -> None:
            self._safely(self._generate, text)
            await capture(text)

        def flushed() -> None:
            self._complete = True
            self.times.flush()
            flush()

        head.capture_text = generated  # type: ignore[method-assign]
        head.flush = flushed  # type: ignore[method-assign]

    def _listen(self, leaf: io.TextOutput) -> None:
        capture, flush = leaf.capture_text, leaf.flush

        async def captured(text: str) -> None:
            self._segment_open = True
            if not self._segment_recorded:
                self._safely(self._show, text)
            await capture(text)

        def flushed() -> None:
            self._segment_open = self._segment_recorded = self._segment_over = False
            flush()

        leaf.heard_by_recall = True  # type: ignore[attr-defined]
        leaf.capture_text = captured  # type: ignore[method-assign]
        leaf.flush = flushed  # type: ignore[method-assign]

    # --- what can be asked --------------------------------------------------------------------

    @property
    def text(self) -> str:
        """All words of the turn that were shown; the last one may be under way."""
        return visible(self._text)

    @property
    def heard(self) -> str:
        """All words of the turn that were heard to their end."""
        if not self._can_be_heard:
            return self.text
        return self._before + said_part(visible(self._segment), self._letters_heard())

    @property
    def any_heard(self) -> bool:
        """Whether anything of the turn was heard, or shown where nothing can be heard."""
        return self._begun or bool(self._text)

    def goes_on(self, after: str) -> bool:
        """Whether more was generated than these words of the turn."""
        return letters(visible(self._generated)) > letters(after)

    @property
    def sentence_left(self) -> float | None:
        """The seconds that the last word, which ends a sentence, may still take; None if it ends
        none, or did so too long ago. A word is told somewhere in its middle."""
        low, high = WORD_TAIL
        left = self._word_at + min(high, max(low, TAIL * self._pace)) - time.monotonic()
        return left if left > 0 and ends_sentence(self.text) else None

    # --- turns --------------------------------------------------------------------------------

    def forget_unheard(self) -> None:
        """The agent listens: what was generated and makes no turn is not part of the next."""
        self._generated = ""
        self.times.clear()
        if not self.playhead.is_playing:
            self._forget_segment()

    def begin_turn(self) -> None:
        """The words so far are in a recorded turn, and so are those that its segment still owes:
        the last ones come after the turn."""
        self._forget_turn()
        self.forget_unheard()
        self._segment_recorded = self._segment_open

    # --- what happens -------------------------------------------------------------------------

    def _safely(self, work: Callable[[_T], None], argument: _T) -> None:
        """A fault of ours does not silence the agent."""
        try:
            work(argument)
        except Exception:
            if not self._faulty:
                logger.exception("what the agent says cannot be followed as it is heard")
            self._faulty = True

    def _generate(self, text: str) -> None:
        if self._complete and not self.playhead.is_playing:
            self._forget_segment()  # the one before was never played
        self._generated += text
        self._segment += text
        start, end = _time(text, "start_time"), _time(text, "end_time")
        tagged = "<" in self._segment
        count = letters(visible(self._segment)) if tagged else self._timed.count + letters(text)
        self._timed.add(text, start, end, count)
        self.times.add(text, visible(self._generated))

    def _frame(self, frame: rtc.AudioFrame) -> None:
        """The voice's words come beside its sound, whether or not they are what is shown."""
        for text in getattr(frame, "userdata", {}).get(TIMED, ()):
            start, end = _time(text, "start_time"), _time(text, "end_time")
            self._beside.add(text, start, end, self._beside.count + letters(text))

    def _show(self, text: str) -> None:
        self._text += text
        if text.strip():
            now = time.monotonic()
            self._pace, self._word_at = now - self._word_at, now
        if self.playhead.is_playing and not self._segment_over:
            before = letters(visible(self._shown.text))
            self._shown.add(text, self.playhead.elapsed, before)
        self._tell_shown()
        self._hear()

    def _started(self, event: io.PlaybackStartedEvent) -> None:
        self._begun = True
        self._look_again()

    def _look_again(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = None
        self._hear()
        if self.playhead.is_playing:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(self._until_next_look(), self._look_again)

    def _until_next_look(self) -> float:
        """The seconds until the word under way ends, if its voice tells that."""
        soonest, latest = LOOK_SECONDS
        position = self.playhead.position
        end = self._words.next_end(position)
        return latest if end is None else min(latest, max(soonest, end - position))

    def _finished(self, event: io.PlaybackFinishedEvent) -> None:
        """Called while the playhead still knows where it is."""
        if event.interrupted:
            self._before = self.heard
            self.was_interrupted = True
        elif self._begun or event.playback_position > 0:
            self._before += visible(self._segment)
        self._begun = self._begun or event.playback_position > 0
        self._segment_over = self._segment_open  # its last words are shown after its end
        self._forget_segment()
        self._hear()

    def _hear(self) -> None:
        if (heard := self.heard) != self._told and heard.strip():
            self._told = heard
            self._tell_heard(heard)

    # --- how much was heard -------------------------------------------------------------------

    def _letters_heard(self) -> int:
        if not self.playhead.is_playing:
            return 0
        position = self.playhead.position
        least, most = self._words.bounds(position)
        return int(min(max(self._shown.heard(position), least), most))

    @property
    def _words(self) -> SpokenWords:
        """The words whose times are known. Those beside the sound count only while they are the
        same as what was generated: a voice may read numbers and marks in its own way."""
        if self._timed.is_timed or not self._beside.is_timed:
            return self._timed
        same = bare(visible(self._segment)).startswith(bare(self._beside.text))
        return self._beside if same else self._timed

    @property
    def _can_be_heard(self) -> bool:
        """Whether the session has a voice; else its words are what is shown."""
        output: Any = self._session.output if self._session is not None else None
        sound = getattr(output, "audio", None)
        return sound is not None and bool(getattr(output, "audio_enabled", True))


def _time(text: str, which: str) -> float | None:
    at = getattr(text, which, None)
    return float(at) if isinstance(at, int | float) else None


def _is_room_output(output: io.TextOutput) -> bool:
    """RoomIO's own end; what an application chains behind it may be slow or drop words."""
    return "Participant" in type(output).__name__
