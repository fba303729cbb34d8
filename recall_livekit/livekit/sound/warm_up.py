"""A standby's models, connected before it acts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from livekit.agents import Agent, AgentSession

__all__ = ["warm_up"]

logger = logging.getLogger("recall_livekit")


def warm_up(session: AgentSession[Any], agent: Agent | None) -> None:
    """Let each model that has a `prewarm` connect now; in the background, and never fatal.

    LiveKit does it as a session starts; the model's connection would then be made while the
    caller waits. What a provider closes again when nothing was asked for minutes is made anew.
    """
    for model in _models(session, agent):
        prewarm = getattr(model, "prewarm", None)
        if not callable(prewarm):
            continue
        try:
            prewarm()
        except Exception:
            logger.warning("%s could not be warmed up", type(model).__name__, exc_info=True)


def _models(session: AgentSession[Any], agent: Agent | None) -> Iterator[object]:
    """Yield the models of this agent: its own, or else the session's."""
    for name in ("llm", "stt", "tts"):
        yield getattr(agent, name, None) or getattr(session, name, None)
