"""Text that a realtime model is told beside its agent's instructions, and does not lose again."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from livekit.agents import Agent, llm
from livekit.agents.llm.chat_context import Instructions

__all__ = ["Notes"]

logger = logging.getLogger("recall_livekit")


class Notes:
    """The notes of one call; `text` may change as more is read."""

    def __init__(self) -> None:
        """There are none yet."""
        self.text = ""
        self._put: WeakKeyDictionary[Agent, tuple[str | Instructions, str | Instructions]]
        self._put = WeakKeyDictionary()
        self._told: WeakKeyDictionary[llm.RealtimeSession[Any], str] = WeakKeyDictionary()
        self._kept: WeakSet[llm.RealtimeSession[Any]] = WeakSet()

    def put(self, agent: Agent) -> None:
        """Put them into the instructions of an agent that has not started yet: for a model that
        takes none later. What was put there before is replaced."""
        if not hasattr(agent, "_instructions"):
            _warn_of_name()
            return
        original, noted = self._put.get(agent, (agent.instructions, agent.instructions))
        if agent.instructions != noted:
            original = agent.instructions  # the application has changed them meanwhile
        noted = _joined(original, self.text)
        agent._instructions = noted
        self._put[agent] = (original, noted)

    def are_put(self, agent: Agent) -> bool:
        """Whether the agent's instructions have them."""
        return agent in self._put

    async def tell(self, agent: Agent, live: llm.RealtimeSession[Any]) -> None:
        """Tell the model of an agent that has started, and again with all instructions that it
        is given from now on: the application's own, or those of an agent that is handed over to.

        Raises:
            RealtimeError: The model did not take them.
        """
        self._keep(live)
        if self._told.get(live, "") != self.text:
            self._told[live] = self.text
            await live.update_instructions(_rendered(agent.instructions, live))

    def _keep(self, live: llm.RealtimeSession[Any]) -> None:
        if live in self._kept:
            return
        self._kept.add(live)
        update = live.update_instructions

        async def with_notes(instructions: str) -> None:
            await update(f"{_rendered(instructions, live)}\n\n{self.text}".strip())

        live.update_instructions = with_notes  # type: ignore[method-assign]


def _joined(instructions: str | Instructions, notes: str) -> str | Instructions:
    if not notes:
        return instructions
    if isinstance(instructions, str):
        return f"{instructions}\n\n{notes}"
    return Instructions(
        instructions.common,
        audio=instructions.audio,
        text=instructions.text,
        dynamic="\n\n".join(part for part in (instructions.dynamic, notes) if part),
    )


def _rendered(instructions: str | Instructions, live: llm.RealtimeSession[Any]) -> str:
    """As LiveKit renders them for a realtime model."""
    if isinstance(instructions, str):
        return instructions
    return instructions.render(modality="audio" if live.capabilities.audio_output else "text")


@cache
def _warn_of_name() -> None:
    logger.warning(
        "this livekit-agents keeps an agent's instructions elsewhere: a realtime model that takes "
        "none after its start does not know what was said before it"
    )
