"""What runs the tools of a session: private to livekit-agents, so looked for before it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from livekit.agents import AgentSession, llm

from ...actions import Mark, mark_of

__all__ = ["executors_of", "mark_of_tool", "tool_like"]

_LIVEKITS_OWN = "lk_agents_"
"""Tools that LiveKit adds, which change nothing but its own running tasks."""


def executors_of(session: AgentSession[Any] | None) -> Iterator[Any]:
    """Yield that of the active agent, and those of async toolsets, however deep; none if this
    version of livekit-agents has them elsewhere."""
    activity = getattr(session, "_activity", None)
    toolsets = _toolsets(getattr(activity, "tools", ()))
    candidates = [getattr(activity, "_tool_executor", None)]
    candidates += [getattr(toolset, "_executor", None) for toolset in toolsets]
    for executor in candidates:
        if callable(getattr(executor, "execute", None)):
            yield executor


def tool_like(tool: Any, run: Callable[..., Any]) -> Any:
    """Return a tool that LiveKit takes for this one: the same schema and signature, other body. Of
    a subclass with a constructor of its own that is a tool of LiveKit's class."""
    kind = llm.RawFunctionTool if isinstance(tool, llm.RawFunctionTool) else llm.FunctionTool
    return kind(functools.wraps(tool)(run), tool.info)


def mark_of_tool(tool: Any) -> Mark:
    """Return what the tool was marked as; LiveKit's own are pure."""
    name = getattr(getattr(tool, "info", None), "name", "")
    return Mark("pure") if name.startswith(_LIVEKITS_OWN) else mark_of(tool)


def _toolsets(tools: Iterable[object]) -> Iterator[llm.Toolset]:
    for tool in tools:
        if isinstance(tool, llm.Toolset):
            yield tool
            yield from _toolsets(tool.tools)
