"""Evidence that is not certain: before a call is taken on it, somebody who can know is asked.

A released lease is free, and a process whose lock is free is gone: no doubt. A stream that broke,
or a deadline that passed, may only mean that the holder is cut off from the records, while it goes
on talking to the caller. Who can know is whoever can see the room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio

from .engine.liveness import Liveness
from .errors import RecallError
from .seams import Clock

__all__ = ["ASK_EVERY", "Doubt", "SomebodyLives"]

logger = logging.getLogger("recall_livekit")

SomebodyLives = Callable[[], Awaitable[bool]]
"""Says whether another agent of the call lives. It may raise `RecallError`: nobody can say."""

ASK_SECONDS = 0.5
"""The longest that one question takes."""
ASK_EVERY = 1.0
"""How often is asked anew while somebody lives (seconds)."""
FRESH = 1.0
"""How old an answer may be (seconds)."""
PATIENCE = 2.0
"""How long "nobody can say" counts as "somebody lives" (seconds): after that a caller, who hears
nobody as far as one can tell, is worth more."""
_CERTAIN = (Liveness.FREE, Liveness.DEAD)


class Doubt:
    """One worker's questions about one call. Without somebody to ask there is no doubt."""

    def __init__(self, clock: Clock) -> None:
        """Have asked nothing yet."""
        self.somebody_lives: SomebodyLives | None = None
        self._clock = clock
        self._asking: asyncio.Task[bool | None] | None = None
        self._asked_at = 0.0
        self._unknown_since: float | None = None
        self._said = False

    def begin(self) -> None:
        """Ask in the background, so that the answer is there when it is needed."""
        now = self._clock.monotonic()
        if self._asking is not None and self._asking.done() and now - self._asked_at > FRESH:
            self._asking = None
        if self.somebody_lives is not None and self._asking is None:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(self.somebody_lives), name="recall asks")

    async def lives(self, liveness: Liveness) -> bool:
        """Whether another agent has the call, in spite of what was seen of its lease."""
        if liveness is Liveness.LIVE:
            return True
        if self.somebody_lives is None or liveness in _CERTAIN:
            return False
        self.begin()
        assert self._asking is not None
        asking, answer = self._asking, await asyncio.shield(self._asking)
        if self._asking is asking:
            self._asking = None
        return self._judge(answer, liveness)

    def forget(self) -> None:
        """The answer, if there is one, is not needed any more: the next one is asked anew."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        self._unknown_since, self._said = None, False

    async def _ask(self, somebody_lives: SomebodyLives) -> bool | None:
        """Return the answer, or None if nobody can say."""
        try:
            with anyio.move_on_after(ASK_SECONDS):
                return await somebody_lives()
        except RecallError as error:
            logger.debug("nobody can say whether the holder lives: %s", error)
        except Exception:
            logger.exception("asking whether the holder lives failed")
        return None

    def _judge(self, answer: bool | None, liveness: Liveness) -> bool:
        if answer is not None:
            self._unknown_since = None
            if answer and not self._said:
                logger.warning(
                    "the holder's lease is %s, but an agent in the room lives: it keeps the call",
                    liveness.value,
                )
            self._said = self._said or answer
            return answer
        now = self._clock.monotonic()
        self._unknown_since = now if self._unknown_since is None else self._unknown_since
        return now - self._unknown_since < PATIENCE
