"""How much of an agent's sound has been heard, in seconds: read off where it leaves the session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from livekit import rtc
from livekit.agents.voice import io

__all__ = ["Playhead"]


class Playhead:
    """Follows one segment after the other through a session's audio output.

    A segment is what is played in one go. Its sound is handed over faster than it is heard, so
    what was heard is the time since it began, less the pauses and the gaps in which there was no
    sound to play.
    """

    def __init__(
        self,
        heard: Callable[[rtc.AudioFrame], None],
        finished: Callable[[io.PlaybackFinishedEvent], None],
    ) -> None:
        """`heard` is told each frame that is handed over, `finished` the end of a segment."""
        self._heard = heard
        self._finished = finished
        self._given = 0.0
        self._before = 0.0
        self._since: float | None = None
        self._began: float | None = None
        self._paused_at: float | None = None
        self._paused = 0.0

    @property
    def is_playing(self) -> bool:
        """Whether a segment has begun to be heard, and has not ended."""
        return self._began is not None

    @property
    def position(self) -> float:
        """The seconds of the segment that were heard."""
        if self._since is None:
            return self._before
        return min(self._given, self._before + time.monotonic() - self._since)

    @property
    def elapsed(self) -> float:
        """The seconds since the segment began, pauses left out; gaps in its sound count."""
        if self._began is None:
            return 0.0
        until = time.monotonic() if self._paused_at is None else self._paused_at
        return max(0.0, until - self._began - self._paused)

    def follow(self, output: io.AudioOutput) -> None:
        """Follow what goes into this output, from now on."""
        capture, pause, resume = output.capture_frame, output.pause, output.resume

        async def captured(frame: rtc.AudioFrame) -> None:
            self._give(frame)
            await capture(frame)

        def paused() -> None:
            self._pause()
            pause()

        def resumed() -> None:
            self._resume()
            resume()

        wrapped: Any = output
        wrapped.capture_frame, wrapped.pause, wrapped.resume = captured, paused, resumed
        output.on("playback_started", self._start)
        output.on("playback_finished", self._finish)

    def _give(self, frame: rtc.AudioFrame) -> None:
        if self._since is not None and self.position >= self._given:
            self._run(self._given)  # a gap in the sound: it goes on only now
        self._given += frame.duration
        self._heard(frame)

    def _run(self, position: float) -> None:
        self._before, self._since = position, time.monotonic()

    def _start(self, event: io.PlaybackStartedEvent) -> None:
        ago = min(max(0.0, time.time() - event.created_at), 1.0)  # the clock may jump
        self._began = time.monotonic() - ago
        if self._paused_at is None:
            self._before, self._since = 0.0, self._began

    def _pause(self) -> None:
        if self._paused_at is None:
            self._before, self._since = self.position, None
            self._paused_at = time.monotonic()

    def _resume(self) -> None:
        if self._paused_at is None:
            return
        if self._began is not None:
            self._paused += time.monotonic() - max(self._began, self._paused_at)
            self._run(self._before)
        self._paused_at = None

    def _finish(self, event: io.PlaybackFinishedEvent) -> None:
        self._finished(event)
        self._given = self._before = self._paused = 0.0
        self._since = self._began = None
