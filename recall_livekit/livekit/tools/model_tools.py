"""Tools of ours for the model: it writes down where it is, and reads what was kept for it.

Their docstrings are what the model is told; each says when to call it. None of them changes
anything outside of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Literal, cast, get_args

import anyio
from livekit.agents import ToolError, function_tool, llm

from ...actions import action
from ...call import Call
from ...errors import InvalidSettings, OutputMissing, RecallError
from ...models import PointerType, WorkingStateChanges
from .paging import PAGE_CHARS, page_of

__all__ = ["ModelTool", "model_tools"]

ModelTool = Literal["fetch_output", "milestone", "set_pointer", "update_working_state"]
"""The names of the tools that the model can be given."""

GetCall = Callable[[], Call]
WRITTEN = "Written down."
HEAD_CHARS = 200
"""What is said around a page."""


def model_tools(call: Call | GetCall, names: Collection[ModelTool]) -> list[llm.Tool]:
    """Return the tools of these names, to be given to an agent: ``Agent(tools=model_tools(...))``.
    `RecallAgent(model_tools=names)` does so itself.

    Args:
        call: The live call, `attached.call` for one, or what returns it when a tool is used.
        names: "update_working_state": the model writes down goal, plan and progress. "milestone":
            what is done for good. "set_pointer": where to find what it made. "fetch_output": it
            reads a long result that was kept aside, in parts of some 800 tokens.

    Raises:
        InvalidSettings: There is no tool of that name.
    """
    get = call if callable(call) else lambda: call
    names = (cast("ModelTool", names),) if isinstance(names, str) else names
    unknown = sorted(set(names) - set(get_args(ModelTool)))
    if unknown:
        raise InvalidSettings(
            f"model_tools has {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(get_args(ModelTool))}"
        )
    return [action("pure")(_MAKERS[name](get)) for name in dict.fromkeys(names)]


def _update_working_state(call: GetCall) -> llm.Tool:
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
        with _told():
            call().update_working_state(**cast("WorkingStateChanges", changes))
        return WRITTEN

    return update_working_state


def _milestone(call: GetCall) -> llm.Tool:
    @function_tool(name="milestone")
    async def milestone(text: str, progress: str | None = None) -> str:
        """Write down that something is done for good, so that it is neither done nor asked again
        after an interruption.

        Call it right after an important step has succeeded: an order placed, a payment made, an
        identity confirmed. Not for plans, and not for what is still under way.

        Args:
            text: What is done, in one sentence, with the numbers and names that came out of it.
            progress: Where the whole stands now, if that changed.
        """
        with _told():
            call().milestone(text, progress=progress)
        return WRITTEN

    return milestone


def _set_pointer(call: GetCall) -> llm.Tool:
    @function_tool(name="set_pointer")
    async def set_pointer(name: str, fields: list[str], kind: PointerType = "external") -> str:
        """Write down where to find something that lives outside of this conversation, so that you
        find it again after an interruption.

        Call it when you made or found such a thing: a booking, an order, a ticket, a file. One of
        the same name replaces what was written down before.

        Args:
            name: What you call it, for instance "booking".
            fields: What finds it again, each as name=value, for instance "number=4711".
            kind: "external" for a thing in another system, "object" for a stored file, "git_ref",
                "env" or "process".
        """
        with _told():
            call().set_pointer(name, kind, _pairs(fields))
        return WRITTEN

    return set_pointer


def _fetch_output(call: GetCall) -> llm.Tool:
    @function_tool(name="fetch_output")
    async def fetch_output(ref: str, part: int = 1) -> str:
        """Read a long result that was stored, of which you were shown only the beginning.

        Call it when you need more of it than you see. The ref is told where the result is, for
        instance "ref 12/0". A very long one is given in parts: ask for part 2, and so on, only if
        you did not find what you need.

        Args:
            ref: The ref as it was told, for instance "12/0".
            part: Which part of it, from 1 on.
        """
        live = call()
        text = await _fetched(live, ref.removeprefix("ref").strip())
        chars = min(PAGE_CHARS, max(HEAD_CHARS, live.settings.output_chars - HEAD_CHARS))
        page, count = await page_of(text, part, chars)
        if not 1 <= part <= count:
            raise ToolError(f"it has {count} parts: ask for part 1 to {count}")
        return page if count == 1 else _paged(page, part, count)

    return fetch_output


_MAKERS: dict[ModelTool, Callable[[GetCall], llm.Tool]] = {
    "fetch_output": _fetch_output,
    "milestone": _milestone,
    "set_pointer": _set_pointer,
    "update_working_state": _update_working_state,
}


@contextmanager
def _told() -> Iterator[None]:
    """What was not done is told to the model, and it goes on."""
    try:
        yield
    except RecallError as error:
        raise ToolError(f"not written down: {error}") from error


async def _fetched(call: Call, ref: str) -> str:
    """Return the text, or say what to do without it: the caller waits meanwhile."""
    try:
        with anyio.fail_after(call.settings.output_wait):
            return await call.fetch_output(ref)
    except OutputMissing as error:
        raise ToolError(f"{error}. Do not ask for this ref again.") from error
    except (RecallError, TimeoutError) as error:
        raise ToolError(
            "it cannot be read now: go on without it, or try once more later"
        ) from error


def _pairs(fields: list[str]) -> dict[str, str]:
    wrong = [field for field in fields if not field.partition("=")[1]]
    if wrong:
        raise ToolError(f"write each field as name=value, not {wrong[0]!r}")
    named = (field.partition("=") for field in fields)
    return {name.strip(): value.strip() for name, _, value in named}


def _paged(page: str, part: int, count: int) -> str:
    rest = f"; what follows is part {part + 1}" if part < count else ", the last one"
    return f"[part {part} of {count}{rest}]\n{page}"
