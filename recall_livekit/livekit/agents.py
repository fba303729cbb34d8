"""The agents of a session, whatever their bases and whatever they override.

LiveKit calls an agent's public hooks on the instance: there, two of them are stood in front of.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from livekit.agents import Agent, ModelSettings, llm

__all__ = ["Listener", "Unattached", "leave_unsaid", "listen"]

logger = logging.getLogger("recall_livekit")

_LISTENER = "_recall_listener"


class Listener(Protocol):
    """Who is asked before an agent does something."""

    async def entering(self, agent: Agent) -> bool:
        """The agent became the active one; return whether its own `on_enter` is to run."""

    async def before_model(self, agent: Agent, chat_ctx: llm.ChatContext) -> None:
        """The agent's model is about to be asked with this context, which may be changed."""


def listen(agent: Agent, listener: Listener) -> None:
    """Ask `listener` before the agent enters and before each of its model calls, from now on, in
    the place of whoever was asked before. A fault of the listener stops neither."""
    is_new = _LISTENER not in vars(agent)
    vars(agent)[_LISTENER] = listener
    if is_new:
        _stand_in_on_enter(agent)
        _stand_in_llm_node(agent)


class Unattached:
    """The listener of an agent whose start livekit-agents did not tell: it enters unobserved."""

    def __init__(self, attach: Callable[[], None]) -> None:
        """`attach` observes the agent's session, and has another listen."""
        self._attach = attach

    async def entering(self, agent: Agent) -> bool:
        """Observe from here on, and say so; whoever listens then is asked."""
        logger.warning(
            "this livekit-agents does not tell when an agent starts: its session is observed from "
            "`on_enter` on, and a realtime model was not told of the call so far before"
        )
        self._attach()
        listener: Listener = vars(agent)[_LISTENER]
        return listener is self or await listener.entering(agent)

    async def before_model(self, agent: Agent, chat_ctx: llm.ChatContext) -> None:
        """Nothing is known before the agent enters."""


def leave_unsaid(agent: Agent) -> None:
    """Skip the agent's next `on_exit`: it never entered."""
    on_exit = agent.on_exit

    async def skipped() -> None:
        agent.on_exit = on_exit  # type: ignore[method-assign]

    agent.on_exit = skipped  # type: ignore[method-assign]


def _stand_in_on_enter(agent: Agent) -> None:
    on_enter = agent.on_enter

    async def entered() -> None:
        if await _answer(vars(agent)[_LISTENER].entering(agent)) is not False:
            await on_enter()

    agent.on_enter = entered  # type: ignore[method-assign]


def _stand_in_llm_node(agent: Agent) -> None:
    llm_node = agent.llm_node

    async def seeded(
        chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> Any:
        await _answer(vars(agent)[_LISTENER].before_model(agent, chat_ctx))
        answer = llm_node(chat_ctx, tools, model_settings)
        return await answer if inspect.isawaitable(answer) else answer

    agent.llm_node = seeded  # type: ignore[method-assign]


async def _answer(asked: Awaitable[bool | None]) -> bool | None:
    try:
        return await asked
    except Exception:
        logger.exception("an agent could not be told where its call stands; it goes on")
        return None
