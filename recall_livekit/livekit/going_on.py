"""The first words of a call that goes on, where the application does not say them itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from livekit.agents import AgentSession

from ..models import Briefing
from .sound.first_words import ResumeAudio
from .succession.handover import what_is_due
from .words import rest_instructions, resume_instructions

__all__ = ["go_on", "go_on_after_handover"]


def go_on(
    session: AgentSession[Any], briefing: Briefing | None, audio: ResumeAudio | None, words: str
) -> None:
    """Have the active agent say one sentence and go on; `audio`, which says `words`, at once."""
    if audio is None:
        session.generate_reply(instructions=resume_instructions(briefing))
        return
    session.say(words, audio=audio.frames())
    session.generate_reply(instructions=resume_instructions(briefing, told=words))


async def go_on_after_handover(
    session: AgentSession[Any],
    briefing: Briefing,
    on_resume: Callable[[Briefing | None], Awaitable[None]],
) -> None:
    """Have the active agent say what is due, if anything; `on_resume` if the caller was cut off."""
    match what_is_due(briefing):
        case "resume":
            await on_resume(briefing)
        case "rest":
            session.generate_reply(instructions=rest_instructions(briefing.turns[-1]))
        case "answer":
            session.generate_reply()
