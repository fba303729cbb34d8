"""Tools: a worker that does not have the call runs none, and the model may keep notes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, cast

from livekit.agents import AgentSession, ToolError, function_tool, llm

from ..call import Call
from ..errors import RecallError
from ..models import WorkingStateChanges

__all__ = ["guard_tools", "working_state_tool"]

logger = logging.getLogger("recall_livekit")

_REFUSED = "Another worker took this call over. Nothing was done; do not try again."


def guard_tools(session: AgentSession[object], may_act: Callable[[], bool]) -> bool:
    """Make every tool of the session's active agent refuse while `may_act` says no.

    Returns False if this version of livekit-agents has no place to do so; then tools run as
    ever, and the caller says so once.
    """
    executors = list(_executors(session))
    for executor in executors:
        _guard(executor, may_act)
    return bool(executors)


def _executors(session: AgentSession[object]) -> Iterator[Any]:
    """Yield what runs the tools: private to livekit-agents, so looked for before it is used."""
    activity = getattr(session, "_activity", None)
    candidates = [getattr(activity, "_tool_executor", None)]
    candidates += [getattr(tool, "_executor", None) for tool in getattr(activity, "tools", ())]
    for executor in candidates:
        if callable(getattr(executor, "execute", None)):
            yield executor


def _guard(executor: Any, may_act: Callable[[], bool]) -> None:
    if getattr(executor.execute, "guarded_by_recall", False):
        return
    execute = executor.execute

    async def guarded(**arguments: Any) -> Any:
        if not may_act():
            raise ToolError(_REFUSED)
        return await execute(**arguments)

    guarded.guarded_by_recall = True  # type: ignore[attr-defined]
    executor.execute = guarded


def working_state_tool(call: Callable[[], Call]) -> llm.Tool:
    """Return the tool with which the model writes down its goal, plan and progress."""

    @function_tool(name="update_working_state")
    async def update_working_state(
        goal: str | None = None,
        plan: list[str] | None = None,
        progress: str | None = None,
        decisions: list[str] | None = None,
        open_questions: list[str] | None = None,
    ) -> str:
        """Write down where you are, so that you can go on after an interruption.

        Call it when the caller's goal becomes clear, when the plan changes, and when a step is
        done. Give only the fields that changed; each replaces what it said before.

        Args:
            goal: What the caller wants, in one sentence.
            plan: The steps to get there, in order.
            progress: Which steps are done and what came out of them.
            decisions: What was agreed with the caller.
            open_questions: What you still have to ask.
        """
        given = {
            "goal": goal,
            "plan": plan,
            "progress": progress,
            "decisions": decisions,
            "open_questions": open_questions,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        try:
            call().update_working_state(**cast("WorkingStateChanges", changes))
        except RecallError as error:
            raise ToolError(f"not written down: {error}") from error
        return "Written down."

    return update_working_state
