"""The same session with Recall."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from livekit.agents import Agent, AgentSession

from recall_livekit import Briefing, Recall, RecallAgent

from .sessions import INSTRUCTIONS


class Resumed(RecallAgent):
    """An agent that must be told what was said before."""

    def __init__(self, recall: Recall, call: str) -> None:
        self.entered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        super().__init__(instructions=INSTRUCTIONS, resume=call, recall=recall)

    async def on_resume(self, briefing: Briefing | None) -> None:
        if briefing is None or not briefing.turns:
            self.entered.set_exception(RuntimeError("it was not told what was said before"))
        else:
            self.entered.set_result(time.perf_counter())

    async def on_fresh(self) -> None:
        self.entered.set_exception(RuntimeError("the call was taken for a fresh one"))


async def end(session: AgentSession[Any], agent: Agent) -> None:
    """Closes the session and, where there is one, its live call."""
    await session.aclose()
    if isinstance(agent, RecallAgent):
        await agent.call.aclose()
