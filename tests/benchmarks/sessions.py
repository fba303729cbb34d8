"""A session of LiveKit alone: no room, no sound, a scripted model. Imports no part of Recall's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from livekit.agents import Agent, AgentSession

from recall_livekit.testing.voices import ScriptedLLM

INSTRUCTIONS = "You are kind."
REPLY = "Yes, I can do that for you."


class Plain(Agent):
    def __init__(self) -> None:
        self.entered: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        super().__init__(instructions=INSTRUCTIONS)

    async def on_enter(self) -> None:
        self.entered.set_result(time.perf_counter())


def new_session() -> AgentSession[Any]:
    return AgentSession(
        llm=ScriptedLLM(lambda _: REPLY), vad=None, turn_handling={"turn_detection": None}
    )
