"""Silence is enforced where sound leaves the session, whatever hooks an agent overrides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from livekit import rtc
from livekit.agents.voice import io

__all__ = ["AudioGate", "gate_text"]

Heard = Callable[[], Awaitable[bool]]
"""Says whether this worker may be heard now. It may wait, bounded, for the first sound only."""


class AudioGate(io.AudioOutput):
    """Passes sound on while this worker may speak, and swallows it while it may not.

    A swallowed segment is reported as interrupted at its beginning, so that the session neither
    hangs nor records as said what nobody heard.
    """

    def __init__(self, behind: io.AudioOutput, heard: Heard) -> None:
        """Stand in front of `behind`."""
        super().__init__(
            label="RecallGate",
            capabilities=io.AudioOutputCapabilities(pause=True),
            next_in_chain=behind,
            sample_rate=behind.sample_rate,
        )
        self._heard = heard
        self._passed = False
        self._swallowed = False

    @property
    def _behind(self) -> io.AudioOutput:
        assert self.next_in_chain is not None
        return self.next_in_chain

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Pass or swallow a frame; once swallowed, the rest of the segment is."""
        await super().capture_frame(frame)
        silent, self._swallowed = self._swallowed, True  # until it passed: this may be cancelled
        if silent or not await self._heard():
            return
        self._swallowed, self._passed = False, True
        await self._behind.capture_frame(frame)

    def flush(self) -> None:
        """End the segment."""
        super().flush()
        if self._passed:
            self._behind.flush()
        elif self._swallowed:
            self.on_playback_finished(playback_position=0.0, interrupted=True)
        self._passed = self._swallowed = False

    def clear_buffer(self) -> None:
        """Stop what is being played."""
        self._behind.clear_buffer()


def gate_text(output: io.TextOutput, heard: Heard) -> None:
    """Let a session's transcription through only while this worker may speak; once for each.

    The output object stays (replacing it would end its synchronisation with the audio); only
    its `capture_text` is wrapped, on the instance.
    """
    capture = output.capture_text
    if getattr(capture, "gated_by_recall", False):
        return

    async def gated(text: str) -> None:
        if await heard():
            await capture(text)

    gated.gated_by_recall = True  # type: ignore[attr-defined]
    output.capture_text = gated  # type: ignore[method-assign]
