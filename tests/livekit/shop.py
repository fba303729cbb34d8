"""An agent with tools on a line, what its caller asks of it, and what is recorded of that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from livekit.agents import Agent, function_tool, llm

from recall_livekit import Action, Briefing, Recall, RecallAgent, Resolved
from recall_livekit.cli.opening import folded
from recall_livekit.engine.noted import NotedAction
from recall_livekit.testing.voices import said

from .line import Line, until

__all__ = [
    "CARD",
    "ROOM",
    "Shop",
    "ask",
    "charging",
    "noted",
    "pairs",
    "shop",
    "the_action",
    "tool_outputs",
]

ROOM = "shop"
CARD = '{"card": "seven"}'


class Shop(RecallAgent):
    """An agent with these tools, which looks into what was left open if it has a resolver."""

    def __init__(self, recall: Recall, *tools: Any, **options: Any) -> None:
        self.resolver: Callable[[Action], Awaitable[Resolved | None]] | None = None
        super().__init__(
            instructions="Sell.", resume=ROOM, recall=recall, tools=list(tools), **options
        )

    async def on_resume(self, briefing: Briefing | None) -> None:
        if self.resolver is not None:
            await self.reconcile(self.resolver)
        await super().on_resume(briefing)


def caller(*calls: llm.FunctionToolCall) -> Callable[[llm.ChatContext], Any]:
    """A model that makes these calls, one batch a user turn, and tells what came out of it."""
    left = list(calls)

    def reply(chat_ctx: llm.ChatContext) -> Any:
        last = chat_ctx.items[-1]
        if isinstance(last, llm.FunctionCallOutput):
            return f"it says {last.output[:40]}"
        return [left.pop(0)] if said(chat_ctx, "user") and left else "nothing more"

    return reply


def charging(log: list[str], text: str = "charged") -> llm.FunctionTool[..., Any]:
    @function_tool
    async def charge(card: str) -> str:
        """Charge the card."""
        log.append(card)
        return text

    return charge


@asynccontextmanager
async def shop(agent: Agent, *calls: llm.FunctionToolCall) -> AsyncIterator[Line]:
    async with Line(agent, caller(*calls)).open() as line:
        yield line


async def ask(line: Line, words: str = "please") -> None:
    """The caller asks, and hears what came out of the tool."""
    outputs = len(tool_outputs(line))
    line.stt.say(words)
    await until(lambda: len(tool_outputs(line)) > outputs)
    await until(lambda: line.session.agent_state == "listening")


def tool_outputs(line: Line) -> list[llm.FunctionCallOutput]:
    items = line.session.history.items
    return [item for item in items if isinstance(item, llm.FunctionCallOutput)]


async def noted(recall: Recall) -> list[NotedAction]:
    run = (await folded(recall, ROOM)).history().run()
    assert run is not None
    return list(run.actions)


async def the_action(recall: Recall) -> Action:
    [one] = await noted(recall)
    return one.action


def pairs(chat_ctx: llm.ChatContext) -> dict[str, tuple[llm.FunctionCall, str]]:
    """Each call with its output, by its id: as model APIs insist on, one to one."""
    calls = [item for item in chat_ctx.items if isinstance(item, llm.FunctionCall)]
    outputs = [item for item in chat_ctx.items if isinstance(item, llm.FunctionCallOutput)]
    assert sorted(c.call_id for c in calls) == sorted({o.call_id for o in outputs})
    assert len(outputs) == len(calls)
    assert all(len(name) <= 32 for c in calls for name in (c.call_id, c.id))
    assert all(len(o.id) <= 32 for o in outputs)
    assert all(isinstance(json.loads(c.arguments), dict) for c in calls)
    told = {o.call_id: o.output for o in outputs}
    return {c.name: (c, told[c.call_id]) for c in calls}
