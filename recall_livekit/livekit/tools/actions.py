"""The tool calls of a session: begun before they run, ended when they end, refused when fenced.

Every tool runs through an executor of LiveKit's: that of the active agent, or that of an async
toolset. Each is wrapped on the instance, and looked for again whenever a new one may have come.
What runs is a tool of the same schema around the application's own: its end is the call's end,
however early LiveKit went on with the conversation.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from livekit.agents import (
    AgentSession,
    FunctionToolsExecutedEvent,
    RunContext,
    StopResponse,
    ToolError,
    ToolExecutionUpdatedEvent,
    llm,
)

from ...actions import Begun, IfUnrecorded, Mark, Resolver, running_as
from ...call import Call
from ...errors import RecallError
from ...models import Action, ActionClass, ActionStatus
from ..unrecorded import Unrecorded
from .executors import executors_of, mark_of_tool, tool_like
from .results import cut_note, result_text, shown_result

__all__ = ["SessionActions"]

logger = logging.getLogger("recall_livekit")

REFUSED = "Another worker took this call over. Nothing was done; do not try again."
UNRECORDED = (
    "Nothing was done: what was about to be done could not be written down, and without that it "
    "must not be done. Tell the caller that it is not possible right now."
)
_ENDED: dict[str, ActionStatus] = {"done": "done", "error": "failed"}
_WRAPPED = "wrapped_by_recall"


class SessionActions:
    """Records every tool call of one session, whichever agent or toolset it belongs to."""

    def __init__(self, call: Call, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """`spawn` runs what is to be done beside the conversation."""
        self._call = call
        self._spawn = spawn
        self._session: AgentSession[Any] | None = None
        self._warned = False
        self._failures = Unrecorded("a tool call")
        self._seen: set[str] = set()
        """The model's names of the calls that came to an executor of ours."""
        self._begun: set[str] = set()
        """The same of those that are recorded, until LiveKit tells their outputs."""
        self._by_events: dict[str, tuple[str, llm.FunctionCall]] = {}
        """The running calls that are recorded from events alone, with their keys."""

    def watch(self, session: AgentSession[Any]) -> None:
        """Record from now on; called again, it looks for what is new."""
        if self._session is None:
            self._session = session
            session.on("conversation_item_added", self._look_again)
            session.on("speech_created", self._look_again)
            session.on("tool_execution_updated", self._tool_updated)
            session.on("function_tools_executed", self._tools_executed)
        self._look_again()

    async def reconcile(self, resolver: Resolver, seconds: float) -> tuple[Action, ...]:
        """See `RecallAgent.reconcile`."""
        if not self._call.known:
            logger.warning("open tool calls are not looked into: the records were not read in time")
            return ()
        try:
            return await self._call.reconcile(resolver, seconds)
        except RecallError as error:
            logger.warning("what became of open tool calls is not recorded: %s", error)
            return self._call.open_actions

    def _look_again(self, _: object = None) -> None:
        """An agent, or a toolset, may have come: wrap what is not wrapped."""
        executors = list(executors_of(self._session))
        for executor in executors:
            if not getattr(executor.execute, _WRAPPED, False):
                self._wrap(executor)
        if not executors and not self._warned:
            self._warned = True
            logger.warning(
                "this livekit-agents has no tool executor that we know: tool calls are recorded "
                "from its events, and a worker that lost its call cannot refuse its tools"
            )

    def _wrap(self, executor: Any) -> None:
        execute = executor.execute

        async def recorded(
            *, tool: Any, run_ctx: Any, mock: Callable[..., Any] | None = None, **how: Any
        ) -> Any:
            if not self._call.may_act:
                raise ToolError(REFUSED)
            self._seen.add(run_ctx.function_call.call_id)
            run = self._recorded(tool, mock or tool, run_ctx)
            if mock is not None:  # it keeps its own signature: a mock may leave parameters out
                return await execute(tool=tool, run_ctx=run_ctx, mock=run, **how)
            return await execute(tool=tool_like(tool, run), run_ctx=run_ctx, **how)

        setattr(recorded, _WRAPPED, True)
        executor.execute = recorded

    def _recorded(
        self, tool: Any, body: Callable[..., Any], run_ctx: RunContext[Any]
    ) -> Callable[..., Any]:
        """Return what runs `body`, the tool itself or a test's mock of it, and records that."""

        @functools.wraps(body)
        async def run(*args: Any, **kwargs: Any) -> Any:
            begun = await self._begin(mark_of_tool(tool), run_ctx)
            with running_as(begun.key), self._ending(begun, tool):
                result = body(*args, **kwargs)
                result = await result if hasattr(result, "__await__") else result
                if isinstance(result, BaseException):  # LiveKit takes it for raised
                    raise result
            self._end(begun.key, tool.info.name, "done", result_text(result))
            return result

        return run

    # --- one call -----------------------------------------------------------------------------

    async def _begin(self, mark: Mark, run_ctx: RunContext[Any]) -> Begun:
        """Return once the tool may run.

        Raises:
            ToolError: It must not.
        """
        called = run_ctx.function_call
        arguments = called.arguments or "{}"
        self._begun.add(called.call_id)
        try:
            begun = await self._call.begin_action(
                called.name,
                action_class=mark.action_class,
                arguments=arguments,
                call_id=called.call_id,
                agent=self._label(),
            )
        except RecallError as error:
            if not self._call.may_act:
                raise ToolError(REFUSED) from error
            self._failures.count(error)
            begun = Begun(await self._unrecorded_key(mark, called.name, arguments), durable=False)
        if mark.action_class != "pure" and not begun.durable:
            self._unrecorded(begun, mark.if_unrecorded, called.name)
        return begun

    async def _unrecorded_key(self, mark: Mark, tool: str, arguments: str) -> str:
        key = None
        if mark.action_class == "idempotent":
            key = await self._call.key_to_repeat(tool, arguments)
        return key or self._call.new_key()

    def _unrecorded(self, begun: Begun, if_unrecorded: IfUnrecorded, tool: str) -> None:
        if if_unrecorded == "run":
            logger.warning("the tool %s runs unrecorded: its beginning is not stored yet", tool)
            return
        logger.warning("the tool %s was refused: its beginning could not be stored", tool)
        self._end(begun.key, tool, "abandoned")
        raise ToolError(UNRECORDED)

    @contextmanager
    def _ending(self, begun: Begun, tool: Any) -> Iterator[None]:
        """Record how it went if it did not return.

        What a tool says itself (`ToolError`) is how it went. Of any other exception nobody knows:
        it may have come after the deed, as a timeout does. The next try of an idempotent one is the
        same call, under the same key.
        """
        name, action_class = tool.info.name, mark_of_tool(tool).action_class
        try:
            yield
        except StopResponse:
            self._end(begun.key, name, "done", "")
            raise
        except ToolError as error:
            self._end(begun.key, name, "failed", result_text(error.message))
            raise
        except Exception as error:
            status: ActionStatus = "failed" if action_class == "pure" else "unknown"
            self._end(begun.key, name, status, _hidden(error))
            raise
        except BaseException:  # cancelled: wherever it was just then
            self._end(begun.key, name, "abandoned" if action_class == "pure" else "unknown")
            raise

    def _end(self, key: str, tool: str, status: ActionStatus, result: str | None = None) -> None:
        """A result that is too long for a record is shown cut, and kept beside the chain."""
        try:
            self._call.end_action(key, status, tool=tool, result=self._fitting(result))
        except RecallError as error:
            self._failures.count(error)
        else:
            if result is not None and self._is_long(result):
                self._spawn(self._keep(key, tool, status, result))

    def _is_long(self, result: str) -> bool:
        return len(result) > self._call.settings.output_chars

    def _fitting(self, result: str | None) -> str | None:
        """Return what a record says at once. Half a number is not known by `redact` as one."""
        if result is None or not self._is_long(result):
            return result
        return cut_note(result) if self._call.redacts else shown_result(result)

    async def _keep(self, key: str, tool: str, status: ActionStatus, result: str) -> None:
        """Keep a long result whole, and say where; until then its record says that it is cut."""
        ref, shown = None, await self._call.redacted(result)
        try:
            ref = (await self._call.keep_output(f"result of {tool}", result)).ref
        except RecallError as error:
            self._failures.count(error)
        try:
            shown = shown_result(shown, ref)
            self._call.end_action(key, status, tool=tool, result=shown, result_ref=ref)
        except RecallError as error:
            self._failures.count(error)

    def _label(self) -> str | None:
        with suppress(RuntimeError):  # no agent runs
            return None if self._session is None else self._session.current_agent.id
        return None

    # --- from events alone ----------------------------------------------------------------------

    def _tool_updated(self, event: ToolExecutionUpdatedEvent) -> None:
        """A tool that did not come through an executor that we know: no wait, and no refusal."""
        update = event.update
        if update.type == "tool_call_started" and update.function_call.call_id not in self._seen:
            self._begun.add(update.function_call.call_id)
            if key := self._note(update.function_call, "external", "started"):
                self._by_events[update.function_call.call_id] = key, update.function_call
        elif update.type == "tool_call_ended" and update.call_id in self._by_events:
            key, called = self._by_events.pop(update.call_id)
            status = _ENDED.get(update.status, "unknown")
            self._note(called, "external", status, update.message or "", key=key)

    def _tools_executed(self, event: FunctionToolsExecutedEvent) -> None:
        """What never came to a tool (an unknown name, arguments that do not fit) is told here only;
        it did nothing, but the model knows of it."""
        for called, output in event.zipped():
            if called.call_id not in self._begun:
                self._note(called, "pure", "failed" if output.is_error else "done", output.output)
            self._begun.discard(called.call_id)
            self._seen.discard(called.call_id)
        self._look_again()

    def _note(
        self,
        called: llm.FunctionCall,
        action_class: ActionClass,
        status: ActionStatus,
        result: str | None = None,
        *,
        key: str | None = None,
    ) -> str | None:
        if not self._call.writable:
            return None
        try:
            return self._call.record_action(
                called.name,
                key=key,
                action_class=action_class,
                status=status,
                arguments=called.arguments or "{}",
                result=self._fitting(result),
                call_id=called.call_id,
            )
        except RecallError as error:
            self._failures.count(error)
            return None


def _hidden(error: Exception) -> str:
    """What the model is told of it, and its class; its text may quote a secret."""
    return f"An internal error occurred ({type(error).__name__})"
