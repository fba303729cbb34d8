"""A call is handed over between two sentences: stop, write, release, leave.

`recall.hand_over` is answered late, with what came of it (`Given`), so that whoever asked knows:
within `BOUND` seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from livekit.agents import AgentSession

from ...call import Call, CallState
from ...models import Briefing
from ..sound.voice import Voice
from ..speech.observer import SessionObserver

__all__ = ["BOUND", "Given", "Handover", "what_is_due"]

logger = logging.getLogger("recall_livekit")

Given = Literal["handed over", "kept", "successor"]
"""What an agent answers: another worker has the call, nobody took it and it goes on, or: it is a
standby itself, and knows now that the call will be handed over to it."""

SENTENCE_SECONDS = 8.0
"""The longest that is waited for the end of a sentence, or of what the caller is saying."""
WORD_SECONDS = 1.0
"""After that, the longest that is waited for the end of a word."""
TAKE_SECONDS = 1.0
"""How long the call is free for a successor to take it."""
TURN_SECONDS = 1.0
"""The longest that LiveKit may take to make a turn of what was interrupted."""
ANEW_SECONDS = 3.0
"""How long a call that nobody took may take to be held again: then a cut reply's rest is said."""
WRITE_SECONDS = 8.0
"""Each of `flush_wait`'s default: what waits before and after, the partials, one to spare."""
LOOK_SECONDS = 0.05
"""How often is looked at what changes without a word."""
BOUND = SENTENCE_SECONDS + WORD_SECONDS + TURN_SECONDS + 2 * TAKE_SECONDS + WRITE_SECONDS
"""The longest that an answer takes while the records answer (seconds)."""


class Handover:
    """One session's call, to be given away once."""

    def __init__(
        self,
        call: Call,
        session: AgentSession[Any],
        observer: SessionObserver,
        voice: Voice,
        go_on: Callable[[Briefing], Awaitable[None]],
    ) -> None:
        """`go_on` is called if nobody took the call and a reply was cut for it."""
        self._call = call
        self._session = session
        self._observer = observer
        self._voice = voice
        self._go_on = go_on

    async def give(self) -> bool:
        """Give the call away; False if nobody took it: then it goes on here."""
        if self._call.state is not CallState.HOLDING:
            return False
        if not await self._call.flush(self._call.settings.flush_wait):
            logger.warning("the call is kept: its records cannot be written")
            return False
        await self._moment()
        if self._observer.tools_running:
            logger.warning("the call is kept: a tool has been running for too long")
            return False
        self._voice.hold()
        cut, before = False, self._call.briefing
        try:
            cut = await self._stop()
            taken = await self._call.hand_over(TAKE_SECONDS)
        finally:
            self._voice.let_go()
            self._observer.cut_here("")
        if taken:
            logger.info("the call was handed over to another worker")
        else:
            logger.warning("nobody took the call that was to be handed over: it goes on here")
            if cut and await self._is_read_anew(before):
                await self._go_on(self._call.briefing)
        return taken

    async def _is_read_anew(self, before: Briefing) -> bool:
        """Whether the call is held again: only then the briefing knows what was cut."""
        try:
            async with asyncio.timeout(ANEW_SECONDS):
                while self._call.briefing is before:  # noqa: ASYNC110  nobody is told of it
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            logger.warning("the rest of a reply is not said: the records are out of reach")
            return False
        return True

    # --- when ---------------------------------------------------------------------------------

    async def _moment(self) -> None:
        """Return when nobody speaks, or at the end of a sentence that is not the last; late, at
        the end of a word."""
        try:
            async with asyncio.timeout(SENTENCE_SECONDS):
                while self._is_busy and not await self._is_between_sentences():
                    await self._news()
        except TimeoutError:
            await self._word()

    async def _is_between_sentences(self) -> bool:
        """Whether the sentence that is now at its end has been heard to its end."""
        if not self._is_speaking or self._observer.caller_speaks or self._observer.tools_running:
            return False
        spoken = self._observer.spoken
        words, seconds = spoken.text, spoken.sentence_left
        if (timed := spoken.times.next_end()) is not None:
            seconds, words = timed
            if seconds > LOOK_SECONDS:
                return False
        if seconds is None or not spoken.goes_on(words):
            return False
        await asyncio.sleep(seconds)
        self._observer.cut_here(words)
        return True

    async def _word(self) -> None:
        """Return at the end of a word."""
        spoken = self._observer.spoken
        try:
            async with asyncio.timeout(WORD_SECONDS):
                words = spoken.text
                while self._is_speaking and spoken.text == words:
                    await self._news()
        except TimeoutError:
            return
        self._observer.cut_here(spoken.text)

    async def _news(self) -> None:
        """Return at the next word of either side, or soon: states change without."""
        self._observer.news.clear()
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._observer.news.wait()
        except TimeoutError:
            return

    @property
    def _is_speaking(self) -> bool:
        return self._session.agent_state == "speaking"

    @property
    def _is_busy(self) -> bool:
        speech = self._session.current_speech is not None or self._is_speaking
        return speech or self._observer.caller_speaks or bool(self._observer.tools_running)

    # --- what ---------------------------------------------------------------------------------

    async def _stop(self) -> bool:
        """Interrupt what is being said, so that its turn says what was; return whether any was."""
        if self._session.current_speech is None:
            return False
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._session.interrupt(force=True)
        except (TimeoutError, RuntimeError) as error:
            logger.warning("what was being said could not be interrupted: %r", error)
        return True


def what_is_due(briefing: Briefing) -> Literal["resume", "rest", "answer", "nothing"]:
    """Return what the caller of a call that was handed over waits for.

    A worker that could stop in time left no words under way: those of the agent say that it died.
    """
    if any(partial.role == "assistant" for partial in briefing.partials):
        return "resume"
    last = briefing.turns[-1] if briefing.turns else None
    if last is None:
        return "nothing"
    if last.role == "user":
        return "answer"
    return "rest" if last.role == "assistant" and last.interrupted else "nothing"
