"""Tool calls as a live call records them: begun durably, ended, settled after a crash."""

from __future__ import annotations

import logging
from contextlib import suppress
from inspect import isawaitable

import anyio

from .actions import Begun, Resolved, Resolver
from .checks import storable_text
from .errors import ReadOnly, RecallError, StoreUnavailable
from .models import RECORD_CHARS, Action, ActionClass, ActionStatus, Briefing
from .open_calls import OpenCalls, same_arguments
from .outbox import Receipt
from .recording import Recording
from .redaction import WITHHELD, Redactor
from .settings import Settings
from .standing import CallState

__all__ = ["ToolCalls"]

logger = logging.getLogger("recall_livekit")

RESOLVING = 10
"""Of so many tool calls a resolver is asked at the same time."""


class ToolCalls(Recording):
    """The part of a live call that takes tool calls. `Call` is the whole."""

    settings: Settings
    _redactor: Redactor
    _open_calls: OpenCalls

    @property
    def may_act(self) -> bool:
        """Whether tools may run: not while another worker has the call."""
        away = self._keeper.state in (CallState.STANDBY, CallState.READ_ONLY)
        return not (away or self._keeper.giving) or self._keeper.lost == "erased"

    async def begin_action(
        self,
        tool: str,
        *,
        action_class: ActionClass = "external",
        arguments: str = "{}",
        call_id: str | None = None,
        agent: str | None = None,
        key: str | None = None,
    ) -> Begun:
        """Record that a tool is about to run; `arguments` is the model's JSON.

        All but a pure one wait, at most `Settings.action_wait`, until their beginning was stored
        under this worker's lease (rule 18); a worker that has no lease yet waits for that too.
        `Begun.durable` tells whether it was. If it was not, run it unrecorded, or do not run it
        and say so: ``end_action(key, "abandoned")``.

        An idempotent call that a dead worker left open, of this tool and with these arguments,
        gets the key that it had, once. Where `redact` makes different arguments alike, they are.

        Raises:
            ReadOnly: Another worker has the call: the tool must not run.
            OutboxFull, Closed: As in `record_turn`: it cannot be recorded.
        """
        deadline = self._clock.monotonic() + self.settings.action_wait
        waits = action_class != "pure"
        if action_class == "idempotent":
            key = key or await self.key_to_repeat(tool, arguments)
        try:
            if waits:
                await self._wait_for_lease(deadline - self._clock.monotonic())
            self._check_may_act()
            action = self._action(tool, key, action_class, arguments, call_id, agent)
            number = self._queue_action(action)
        except BaseException:
            self._open_calls.not_repeated(key)
            raise
        self._open_calls.began(action)
        durable = False
        try:
            durable = waits and await self._is_under_lease(number, deadline)
            self._check_may_act()
        except BaseException:  # it does not run, and nobody is to wonder whether it did
            with suppress(RecallError):
                self.end_action(action.key, "abandoned")
            raise
        if waits and not durable:
            self._open_calls.runs_unrecorded(action.key)
        return Begun(action.key, durable)

    def end_action(
        self,
        key: str,
        status: ActionStatus = "done",
        *,
        tool: str = "?",
        result: str | None = None,
        result_ref: str | None = None,
    ) -> None:
        """Queue how a tool call went. "unknown": it may have happened, "abandoned": it did not,
        which is "unknown" too of one that was repeated: its first try may have. `tool` names one
        that could not be begun.

        It is recorded for a call that began here even if another worker has the call by now: as
        a late record, which says what happened and changes nothing else (rule 6). Said again, it
        replaces what was said.

        Raises:
            ReadOnly: Another worker has the call, and this tool call did not begin here.
            OutboxFull, Closed: As in `record_turn`.
        """
        if status == "abandoned" and self._open_calls.is_repeated(key):
            status = "unknown"
        began = self._open_calls.begun(key)
        known = began or self._left_open(key) or Action(at=0.0, key=key, tool=storable_text(tool))
        end = _end(known, self._clock.now(), status, result, result_ref)
        if self._open_calls.ran_unrecorded(key):
            end = end.model_copy(update={"unrecorded": True})
        self._queue_action(end, late=began is not None)
        self._open_calls.ended(end)

    @property
    def redacts(self) -> bool:
        """Whether `redact` runs over what is stored: no text is cut before it did."""
        return self._redactor.redacts

    async def redacted(self, text: str) -> str:
        """Return what may be stored of a text."""
        return await self._redactor.text(text)

    def new_key(self) -> str:
        """Return a key that no tool call had, for one that cannot be recorded."""
        return f"{self._keeper.writer}-{self._clock.new_id()}"

    async def key_to_repeat(self, tool: str, arguments: str) -> str | None:
        """Return the key of an idempotent call of this tool, with these arguments, that was left
        open, if there is one: it is given out once, until that try has no outcome either.

        Waits for the records, at most `Settings.action_wait`: a new key would charge again.
        Arguments that are too long to be recorded whole are not found again.
        """
        with anyio.move_on_after(self.settings.action_wait):
            while self._keeper.briefing is None and self._keeper.state is CallState.READING:
                await self._keeper.wait_change()
        if len(arguments) > RECORD_CHARS or not self._open_calls.repeatable(self._keeper.briefing):
            return None
        told = await self._as_recorded(tool, arguments)
        for action in self._open_calls.repeatable(self._keeper.briefing):
            if told is not None and _is_same(action, told):
                self._open_calls.repeat(action.key)
                return action.key
        return None

    async def reconcile(self, resolver: Resolver, seconds: float = 3.0) -> tuple[Action, ...]:
        """Ask `resolver` how each tool call went that dead workers left open, ten at a time, and
        record what it says; return those that are still open.

        From then on `briefing` has the others among the finished ones. Whatever it raises, or
        does not answer within `seconds`, leaves a call open.

        Raises:
            StoreUnavailable: The records were not read yet.
            ReadOnly: Another worker has the call.
            OutboxFull, Closed: As in `record_turn`.
        """
        self._check_may_act()
        left = self.open_actions
        found: dict[str, Resolved] = {}
        few = anyio.CapacityLimiter(RESOLVING)
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                for action in left:
                    tasks.start_soon(_ask, few, resolver, action, found)
        self._open_calls.settle([self._end(a, found[a.key]) for a in left if a.key in found])
        return self.open_actions

    @property
    def open_actions(self) -> tuple[Action, ...]:
        """The tool calls that dead workers left open and nobody settled.

        Raises:
            StoreUnavailable: The records were not read yet.
        """
        return self._open_calls.open_in(self.briefing)

    @property
    def briefing(self) -> Briefing:
        """The newest briefing: of the last read, or of the lease; with what `reconcile` found.

        Raises:
            StoreUnavailable: The records were not read yet.
        """
        if self._keeper.briefing is None:
            raise StoreUnavailable("the records of this call were not read yet")
        return self._open_calls.told(self._keeper.briefing)

    # --- inside ---------------------------------------------------------------------------------

    def _check_may_act(self) -> None:
        if not self.may_act:
            state = "handing it over" if self._keeper.giving else self._keeper.state.value
            raise ReadOnly(self._keeper.epoch, state)

    def _queue_action(self, action: Action, *, late: bool = False) -> int:
        return self._queue(Action, late=late, **action.model_dump(exclude={"v", "kind"}))

    async def _wait_for_lease(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._keeper.state in (CallState.READING, CallState.ACQUIRING):
                await self._keeper.wait_change()

    def _action(
        self,
        tool: str,
        key: str | None,
        action_class: ActionClass,
        arguments: str,
        call_id: str | None,
        agent: str | None,
    ) -> Action:
        return Action(
            at=self._clock.now(),
            key=key or f"{self._keeper.writer}-{self._outbox.last + 1}",
            tool=storable_text(tool),
            action_class=action_class,
            arguments=storable_text(arguments),
            call_id=None if call_id is None else storable_text(call_id),
            agent=agent,
        )

    async def _is_under_lease(self, number: int, deadline: float) -> bool:
        """Whether the record was accepted under the lease that this worker has now. One that
        stood still meanwhile looks at its lease first, or it cannot know."""
        receipt = self._outbox.receipt(number)
        try:
            with anyio.move_on_after(deadline - self._clock.monotonic()):
                await receipt.wait()
                self._keeper.feel()
                while self._keeper.suspect:
                    await self._keeper.wait_change()
        finally:
            self._outbox.no_receipt(number)
        return self._holds_since(receipt) and self._clock.monotonic() <= deadline

    def _holds_since(self, receipt: Receipt) -> bool:
        keeper = self._keeper
        holds = keeper.state is CallState.HOLDING and not keeper.suspect
        return holds and receipt.epoch == keeper.epoch

    async def _as_recorded(self, tool: str, arguments: str) -> Action | None:
        """Return a call as it is in the records, None if its text is withheld."""
        made = Action(at=0.0, key="?", tool=storable_text(tool), arguments=storable_text(arguments))
        [told] = await self._redactor.records([made], self.settings.action_wait)
        if not isinstance(told, Action) or WITHHELD in (told.tool, told.arguments):
            return None
        return told

    def _left_open(self, key: str) -> Action | None:
        actions = self._keeper.briefing.actions if self._keeper.briefing else ()
        return next((action for action in actions if action.key == key), None)

    def _end(self, action: Action, found: Resolved) -> Action:
        end = _end(action, self._clock.now(), found.status, found.result)
        self._queue_action(end)
        return end


def _is_same(one: Action, other: Action) -> bool:
    return one.tool == other.tool and same_arguments(one.arguments, other.arguments)


def _end(
    began: Action,
    at: float,
    status: ActionStatus,
    result: str | None,
    result_ref: str | None = None,
) -> Action:
    """Return the end of a call; its arguments are with its beginning."""
    return began.model_copy(
        update={
            "at": at,
            "status": status,
            "arguments": "{}",
            "result": None if result is None else storable_text(result),
            "result_ref": result_ref,
        }
    )


async def _ask(
    few: anyio.CapacityLimiter, resolver: Resolver, action: Action, found: dict[str, Resolved]
) -> None:
    try:
        async with few:
            asked = resolver(action)
            resolved: object = await asked if isawaitable(asked) else asked
    except Exception:
        logger.exception("a resolver failed: what it was asked about stays open")
        return
    if isinstance(resolved, Resolved) and resolved.status in ("done", "failed"):
        found[action.key] = resolved
    elif resolved is not None:
        logger.error(
            "a resolver returned a %s, and what it was asked about stays open: return "
            'Resolved("done", result), Resolved("failed", result) or None',
            type(resolved).__name__,
        )
