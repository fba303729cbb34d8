"""The agent's words as they are spoken, read off behind the transcript synchronizer."""

from __future__ import annotations

from collections.abc import Callable

from livekit.agents import AgentSession
from livekit.agents.voice import io

__all__ = ["SpokenText"]


class SpokenText:
    """Gathers what the session's last text output is given: words in step with the voice.

    Text is generated long before it is heard; only this end of the chain knows what was said.
    """

    def __init__(self, spoken: Callable[[str], None]) -> None:
        """Call `spoken` with all words of the turn so far, at each new one."""
        self._spoken = spoken
        self._text = ""

    def attach(self, session: AgentSession[object]) -> bool:
        """Listen to the session's output; False if it has none that could be listened to."""
        leaf = session.output.transcription
        if leaf is None:
            return False
        while leaf.next_in_chain is not None and not _is_room_output(leaf):
            leaf = leaf.next_in_chain
        self._listen(leaf)
        return True

    def begin_turn(self) -> None:
        """The words so far are in a recorded turn."""
        self._text = ""

    def _listen(self, leaf: io.TextOutput) -> None:
        capture = leaf.capture_text

        async def captured(text: str) -> None:
            self._text += text
            self._spoken(self._text)
            await capture(text)

        leaf.capture_text = captured  # type: ignore[method-assign]


def _is_room_output(output: io.TextOutput) -> bool:
    """RoomIO's own end; what an application chains behind it may be slow or drop words."""
    return "Participant" in type(output).__name__
