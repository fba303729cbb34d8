"""On a call that goes on, the agent that was active takes the place of the one started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from livekit.agents import Agent, AgentSession

from ..call import Call

__all__ = ["AgentFactory", "BringBack", "bringing", "is_started"]

logger = logging.getLogger("recall_livekit")

AgentFactory = Callable[[], Agent]
"""Makes an agent anew: its class, or a function without arguments. It must not block."""

bringing: ContextVar[Call | None] = ContextVar("bringing", default=None)
"""The live call that an agent belongs to which is being made; it opens none of its own."""

LOOK_SECONDS = 0.02
START_SECONDS = 60.0
"""How long a session may take to start, which includes the room's connection."""


class BringBack:
    """Makes the agent that was active when the call was cut off."""

    def __init__(self, call: Call, factories: Mapping[str, AgentFactory]) -> None:
        """`factories` by the labels of the agents that they make."""
        self._call = call
        self._factories = dict(factories)
        self.agent: Agent | None = None
        """The agent that was brought back last."""

    @property
    def is_possible(self) -> bool:
        """Whether it is worth waiting for the records to know which agent was active."""
        return bool(self._factories)

    def make(self, entry: Agent) -> Agent | None:
        """Return the agent that is to take the place of `entry`; None if that one is to go on."""
        missing = None if self.agent is entry else self._missing(entry)
        factory = self._factories.get(missing or "")
        if factory is None:
            return None
        token = bringing.set(self._call)
        try:
            made: object = factory()
            if not isinstance(made, Agent):
                raise TypeError(f"it returned {made!r}, and no Agent")
        except (Exception, asyncio.CancelledError):
            logger.exception("the factory of an agent failed: %r goes on in its place", entry.id)
            return None
        finally:
            bringing.reset(token)
        self.agent = made
        return made

    def say_who_is_missing(self, active: Agent) -> None:
        """Warn if another agent than this one had the call."""
        missing = self._missing(active) if self.agent is not active else None
        if missing is not None and missing not in self._factories:
            logger.warning(
                "%r was the active agent when this call was cut off, and %r goes on in its place: "
                "resume_agents={%r: ...} brings it back",
                missing,
                active.id,
                missing,
            )

    def _missing(self, active: Agent) -> str | None:
        if not self._call.known or self._call.briefing.fresh:
            return None
        label = self._call.briefing.agent
        return None if label == active.id else label


async def is_started(session: AgentSession[Any]) -> bool:
    """Wait until the session has started; before that it takes no other agent. False if it closed
    before that, or did not start within `START_SECONDS`."""
    closed = asyncio.Event()
    session.once("close", lambda event: closed.set())
    try:
        async with asyncio.timeout(START_SECONDS):
            while not (_has_started(session) or closed.is_set()):  # noqa: ASYNC110  nobody tells
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return False
    return not closed.is_set()


def _has_started(session: AgentSession[Any]) -> bool:
    """Private to livekit-agents; without it the state says so, if nothing is said before."""
    started = getattr(session, "_started", None)
    return started if isinstance(started, bool) else session.agent_state != "initializing"
