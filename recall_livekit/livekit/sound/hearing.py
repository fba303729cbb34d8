"""What the caller said into the gap, heard by the new session before what is said now."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
from livekit import rtc
from livekit.agents import AgentSession
from livekit.agents.voice import io

from ...models import Briefing
from .ring import SAMPLE_RATE, CallerEar

__all__ = ["HeardAgain", "heard_until", "without_silence"]

logger = logging.getLogger("recall_livekit")

SPEED = 10.0
"""How much faster than real time it is played. A recogniser keeps up with more; the pause between
the frames is for everything else on the event loop."""
FRAME_SECONDS = 0.02
CAUGHT_UP = 0.6
"""A source that gave nothing for this part of a frame has no more waiting: it is live."""
SECOND = 1.6
"""How long the second frame is waited for, in frames: when one comes tells when it began only if
the event loop was free, and it is busy as a session starts."""
MOST_WAITING = 400
"""A source that never pauses is taken to be live after so many frames."""
QUIET = 200
"""Samples below this are silence (-44 dBFS): there is nothing to hear again."""
BEFORE_SPEECH = 0.3
"""How much of the silence before the first sound is kept: recognisers want some."""


def heard_until(briefing: Briefing, freed_at: float) -> float:
    """Return until when (Unix seconds) the caller's words are in the records as turns.

    What came after the last of them was under way or not heard at all: a partial begins there.
    Who had the call heard nothing from `freed_at` on, whatever its clock says.
    """
    turns = (turn.at for turn in briefing.turns if turn.role == "user")
    return min(max(turns, default=0.0), freed_at)


class HeardAgain(io.AudioInput):
    """A session's own audio input, and before its first frame the caller's words since `since`.

    The seam is where the source's first frame begins: nothing is left out there, and nothing is
    heard twice. The replay has the source's sample rate, without its noise cancellation.
    """

    def __init__(
        self, source: io.AudioInput, ear: CallerEar, since: float, session: AgentSession[object]
    ) -> None:
        """Stand in front of `source`; `ear` is closed once it is live."""
        super().__init__(label="RecallHearing", source=source)
        self._behind = source
        self._ear = ear
        self._since = since
        self._session = session
        self._waiting: deque[rtc.AudioFrame] = deque()
        self._next: asyncio.Task[rtc.AudioFrame] | None = None
        self._due = 0.0
        self._begun: asyncio.Task[None] | None = asyncio.create_task(
            self._begin(), name="recall hearing"
        )

    async def __anext__(self) -> rtc.AudioFrame:
        """Return the next frame: of the replay, or the source's."""
        if self._begun is not None:
            await asyncio.wait([self._begun])
            self._begun = None
        if self._waiting:
            await self._pace(self._waiting[0].duration)
            return self._waiting.popleft()
        if self._next is not None:
            await asyncio.wait([self._next])  # which a session that is closing may cancel
            following, self._next = self._next, None
            return following.result()
        return await self._behind.__anext__()

    async def aclose(self) -> None:
        """End what waits for the source."""
        for task in (self._begun, self._next):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._ear.aclose()

    # --- inside -------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Have all that is to be heard before the source's next frame."""
        try:
            live, began = await self._catch_up()
            await self._ear.aclose()
            if live and self._is_linked():
                self._waiting.extend(self._replay(live[0], began))
            self._waiting.extend(live)
        except Exception:
            logger.exception("what the caller said into the gap is not heard again")

    async def _catch_up(self) -> tuple[list[rtc.AudioFrame], float]:
        """Return the source's frames up to now, and when the first of them began.

        A session may have let some wait in its stream: they are older than when they come.
        """
        live: list[rtc.AudioFrame] = []
        began, seconds, pause = math.inf, 0.0, None
        while len(live) < MOST_WAITING:
            self._next = self._next or asyncio.create_task(self._from_source())
            done, _ = await asyncio.wait([self._next], timeout=pause)
            if not done or self._next.exception() is not None:
                break
            live.append(self._next.result())
            self._next, duration = None, live[-1].duration
            seconds += duration
            began = min(began, time.time() - seconds)
            pause = duration * (SECOND if len(live) == 1 else CAUGHT_UP)
        return live, began

    async def _from_source(self) -> rtc.AudioFrame:
        return await self._behind.__anext__()

    def _is_linked(self) -> bool:
        """Whether the session serves the caller who was listened to."""
        try:
            linked = self._session.room_io.linked_participant
        except RuntimeError:
            return True  # a session without a room has the input that it was given
        return linked is None or linked.identity == self._ear.identity

    def _replay(self, like: rtc.AudioFrame, before: float) -> Iterator[rtc.AudioFrame]:
        samples = without_silence(self._ear.ring.between(self._since, before))
        if samples:
            seconds = len(samples) / 2 / SAMPLE_RATE
            logger.info("hearing what the caller said before this worker spoke: %.1f s", seconds)
        return _framed(_resampled(samples, like.sample_rate), like)

    async def _pace(self, duration: float) -> None:
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - FRAME_SECONDS)
        await asyncio.sleep(max(0.0, self._due - now))
        self._due += duration / SPEED


def without_silence(samples: bytes) -> bytes:
    """Return the samples from a little before the first sound on; nothing if there is none."""
    loud = np.flatnonzero(np.abs(np.frombuffer(samples, np.int16).astype(np.int32)) >= QUIET)
    if not len(loud):
        return b""
    return samples[2 * max(0, int(loud[0]) - int(BEFORE_SPEECH * SAMPLE_RATE)) :]


def _resampled(samples: bytes, rate: int) -> bytes:
    if rate == SAMPLE_RATE or not samples:
        return samples
    resampler = rtc.AudioResampler(SAMPLE_RATE, rate)
    frames = [*resampler.push(bytearray(samples)), *resampler.flush()]
    return b"".join(bytes(frame.data.cast("b")) for frame in frames)


def _framed(samples: bytes, like: rtc.AudioFrame) -> Iterator[rtc.AudioFrame]:
    """Yield the samples in small frames that fit the source's."""
    size = 2 * int(like.sample_rate * FRAME_SECONDS)
    channels = like.num_channels
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        every = np.repeat(np.frombuffer(part, np.int16), channels).tobytes()
        yield rtc.AudioFrame(every, like.sample_rate, channels, len(part) // 2)
