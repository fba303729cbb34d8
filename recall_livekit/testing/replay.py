"""A recorded call, resumed by the user's own agent at any moment: what does it do next?"""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from livekit.agents import (
    NOT_GIVEN,
    Agent,
    AgentSession,
    ConversationItemAddedEvent,
    FunctionToolsExecutedEvent,
    RunResult,
    llm,
    mock_tools,
)

from ..call import Call, CallState
from ..client import Recall
from ..errors import InvalidInput
from ..livekit.session import LiveSession
from ..models import Briefing
from ..settings import Settings
from .default_records import opens
from .moments import Moment
from .past import Past, load

__all__ = ["Resumed", "resumed"]

logger = logging.getLogger("recall_livekit")

Tools = Mapping[str, Callable[..., object]]
_T = TypeVar("_T")
CLOSE_SECONDS = 10.0
"""The longest that a session may take to close; then it is left alone, and its call ended."""


@asynccontextmanager
async def resumed(
    make: Callable[[Past], Agent],
    source: str | os.PathLike[str] | Recall,
    call_id: str | None = None,
    *,
    at_turn: int | None = None,
    at_entry: int | None = None,
    during: str | None = None,
    cut: str | int | None = None,
    silence: float = 2.0,
    llm: llm.LLM[Any] | str | None = None,
    session: AgentSession[Any] | None = None,
    tools: Tools | None = None,
    settings: Settings | None = None,
    timeout: float = 60.0,
) -> AsyncIterator[Resumed]:
    """Load a recorded call as it was when its worker died, and have your agent go on with it.

    The past is copied into a store in memory, and nothing is written to where it came from. The
    engine, the resume and the session are the real ones; only the voice is missing: the session is
    of text. On entry the agent has the call, and has said what it says by itself.

    Args:
        make: Makes the agent, as your entrypoint does: ``lambda past: Support(past.call_id)``.
            Meanwhile `Recall.open()` opens the past, whatever its arguments; an agent that is given
            a `Recall` is to be given `past.recall`.
        source: What ``recall-livekit export CALL -o FILE`` wrote, or a store: its address, or a
            `Recall`.
        call_id: Which call, in a store.
        at_turn: It died right after this turn; turns are numbered from 1 on, through all runs of
            the call (`Turn.seq`).
        at_entry: It died right after this entry of the chain, from 0 on, as in
            ``recall-livekit show CALL --at``.
        during: It died while this tool ran: right after the last call of it began, or, with
            `at_turn`, after the first one that begins after that turn.
        cut: It died in the middle of that turn: after so many of its words, or after these.
        silence: How long nobody was there, in seconds. All times in the call are moved, so that it
            died so long ago.
        llm: The model, real or scripted, of a session made here. Your agent may bring its own.
        session: A session of your own instead, not started.
        tools: What runs instead of the tools of these names, of whichever agent is active (see
            LiveKit's `mock_tools`). All other tools run as they are. A warning says if none of its
            agents has a tool of that name.
        settings: How the worker behaves; by default it waits long for its records, so that
            nothing depends on a fast machine.
        timeout: The longest that the agent may take for what it does on entry, and for each
            answer, in seconds.

    With none of the moments it died after the call's last entry, whatever became of it then, with
    the words that were under way; of a call of several runs, the newest one goes on. What is newer
    than this version stays in its place, unread, and `briefing.unreadable` counts it. Of an erased
    call nothing can be loaded.

    Raises:
        InvalidInput: The file is no export, or the call has no such moment; or the agent does not
            resume this call.
        StoreError: The store cannot be read.
        TimeoutError: The agent did not come to an end.
    """
    moment = Moment(at_turn=at_turn, at_entry=at_entry, during=during, cut=cut)
    if session is not None and llm is not None:
        raise InvalidInput("give llm= or a session= that has one, not both")
    past = await load(source, call_id, moment, silence=silence, settings=settings)
    if session is None:
        session = _text_session(llm)
    try:
        with opens(past.open):
            going = Resumed(past, session, make(past), timeout=timeout, tools=tools or {})
            try:
                await going._start()
                yield going
                going._warn_of_tools()
            finally:
                await going._aclose()
    finally:
        await past.aclose()


def _text_session(model: llm.LLM[Any] | str | None) -> AgentSession[Any]:
    """Return a session that needs no voice, and begins no turn by itself."""
    return AgentSession(
        llm=NOT_GIVEN if model is None else model,
        vad=None,
        turn_handling={"turn_detection": "manual"},
    )


class Resumed:
    """A call that goes on: what the agent says and does from the resume on."""

    first: RunResult[Any]
    """What it did by itself as it entered, for LiveKit's own assertions (`first.expect`). What an
    attached session says, or an agent that was brought back, comes after that: see `said`."""

    def __init__(
        self,
        past: Past,
        session: AgentSession[Any],
        agent: Agent,
        *,
        timeout: float,
        tools: Tools,
    ) -> None:
        self.past = past
        self.session = session
        self._agent = agent
        self._timeout = timeout
        self._tools = dict(tools)
        self._unmocked = set(tools)
        self._live: LiveSession | None = None
        self._said: list[str] = []
        self._calls: list[llm.FunctionCall] = []
        session.on("conversation_item_added", self._item_added)
        session.on("function_tools_executed", self._tools_executed)
        if tools:
            self._mock_always()

    @property
    def call(self) -> Call:
        """The live call of the agent."""
        assert self._live is not None
        return self._live.call

    @property
    def briefing(self) -> Briefing:
        """What the agent was told of the past."""
        return self.call.briefing.model_copy(update={"silence": self.call.silence})

    @property
    def said(self) -> Sequence[str]:
        """What the agent has said since it resumed, a text a message."""
        return tuple(self._said)

    @property
    def calls(self) -> Sequence[llm.FunctionCall]:
        """The tool calls that the model has made since, whether they ran, failed or were refused,
        with their arguments; in order."""
        return tuple(self._calls)

    @property
    def called(self) -> Sequence[str]:
        """The names of the tools in `calls`."""
        return tuple(call.name for call in self._calls)

    async def hears(self, text: str) -> RunResult[Any]:
        """Have the caller say this, and return what the agent does, to its end.

        It is ``session.run(user_input=text)`` with a bound.

        Raises:
            TimeoutError: It came to no end.
        """
        return await self._ended(self.session.run(user_input=text), f"an answer to {text!r}")

    # --- inside ---------------------------------------------------------------------------------

    async def _start(self) -> None:
        start = self.session.start(self._agent, capture_run=True)
        self.first = await self._ended(start, "what it says as it resumes")
        self._live = LiveSession.of_session(self.session)
        mine = self._live is not None and self.past.has(self._live.recall)
        if self._live is None or not mine or self._live.call.call_id != self.past.call_id:
            raise InvalidInput(
                f"the agent does not resume the call {self.past.call_id!r} from what was loaded: "
                "make it with past.call_id, and with past.recall if it is given a Recall"
            )
        if not await self.call.holding(self._timeout):
            raise TimeoutError(f"the agent did not get the call: it is {self.call.state.value}")
        await self._ended(self._first_words(self._live), "what it says as it resumes")

    async def _first_words(self, live: LiveSession) -> None:
        """They may come after the start: of an attached session, or of an agent brought back."""
        await live.begun()
        await self.session.wait_for_idle()

    async def _ended(self, work: Awaitable[_T], what: str) -> _T:
        try:
            async with asyncio.timeout(self._timeout):
                return await work
        except TimeoutError:
            raise TimeoutError(f"the agent needs over {self._timeout:g} s for {what}") from None

    async def _aclose(self) -> None:
        """End the session and the call, also one that never came to be a session's."""
        try:
            async with asyncio.timeout(min(self._timeout, CLOSE_SECONDS)):
                await self.session.aclose()
        except TimeoutError:
            logger.warning("the session does not close: a hook or a tool of the agent still runs")
        live = LiveSession.of_session(self.session) or getattr(self._agent, "_live", None)
        if live is None:
            return
        if live.call.state is not CallState.CLOSED:
            live.discard()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await live.closed()
        except TimeoutError:
            logger.warning("a hook of the agent still runs: it is left alone")

    def _mock_always(self) -> None:
        """Mock the tools of whichever agent is active, from before it is."""
        self._mock(self._agent)
        update = self.session.update_agent  # also what a tool's handoff calls

        def update_agent(agent: Agent) -> None:
            self._mock(agent)
            update(agent)

        self.session.update_agent = update_agent  # type: ignore[method-assign]
        self.session.on("speech_created", lambda _: self._mock(self.session.current_agent))

    def _mock(self, agent: Agent) -> None:
        """LiveKit's mocks are those of the active agent's type."""
        mock_tools(type(agent), self._tools, session=self.session)
        known = llm.ToolContext([*agent.tools, *self.session.tools]).function_tools
        self._unmocked -= known.keys()
        if agent.mcp_servers or self.session.mcp_servers:
            self._unmocked.clear()  # whose tools are known to nobody yet

    def _warn_of_tools(self) -> None:
        """A name that is written wrong would let the real tool run, and nobody would see it."""
        if self._unmocked:
            names = ", ".join(sorted(self._unmocked))
            warnings.warn(f"no agent had a tool of the name {names}: not mocked", stacklevel=4)

    def _item_added(self, event: ConversationItemAddedEvent) -> None:
        item = event.item
        if isinstance(item, llm.ChatMessage) and item.role == "assistant" and item.text_content:
            self._said.append(item.text_content)

    def _tools_executed(self, event: FunctionToolsExecutedEvent) -> None:
        self._calls += event.function_calls
