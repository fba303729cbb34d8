"""Handoffs between the agents of a call, and who goes on with it after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import anyio
import pytest
from livekit.agents import (
    Agent,
    AgentTask,
    CloseEvent,
    CloseReason,
    RunContext,
    function_tool,
    llm,
)

from recall_livekit import Briefing, CallState, Recall, RecallAgent
from recall_livekit.engine.entries import RecordsEntry
from recall_livekit.livekit import bring_back
from recall_livekit.models import Handoff
from recall_livekit.testing.voices import said, tool_call

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, until

pytestmark = pytest.mark.anyio
ROOM = "support room"


class Notes:
    """What the agents of a test did, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, what: str) -> None:
        self.done.append(what)


def unnoted(what: str) -> None:
    """A test that does not look."""


class Billing(Agent):
    """An agent with another base, an `on_enter` that greets, and a tool of its own."""

    def __init__(self, note: Callable[[str], None] = unnoted, **options: Any) -> None:
        super().__init__(instructions="You do the bills.", **options)
        self._note = note

    async def on_enter(self) -> None:
        self._note("billing enters")
        self.session.say("billing here")

    async def on_exit(self) -> None:
        self._note("billing exits")

    @function_tool
    async def open_bill(self) -> str:
        """Open the bill."""
        self._note("bill opened")
        return "the bill is nine"


class Farewell(Agent):
    """An agent that waits for the caller."""


class Seats(AgentTask[str]):
    """A task that asks for something."""

    def __init__(self) -> None:
        super().__init__(instructions="Ask how many seats.")

    async def on_enter(self) -> None:
        self.session.say("how many seats")

    @function_tool
    async def seats_are(self, seats: str) -> None:
        """The caller said how many."""
        self.complete(seats)


class Reception(RecallAgent):
    """The agent that each session is started with."""

    def __init__(
        self, recall: Recall, note: Callable[[str], None] = unnoted, **options: Any
    ) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall, **options)
        self._note = note

    async def on_fresh(self) -> None:
        self._note("fresh")
        self.session.say("hello there")

    async def on_resume(self, briefing: Briefing | None) -> None:
        self._note("resume")
        await super().on_resume(briefing)

    async def on_exit(self) -> None:
        self._note("reception exits")

    @function_tool
    async def to_billing(self) -> Agent:
        """Hand over to billing."""
        return Billing(self._note, chat_ctx=self.chat_ctx)

    @function_tool
    async def look_up(self, ctx: RunContext[Any]) -> str:
        """Look up the caller; it ends after the handoff of the same batch."""
        await asyncio.sleep(0.1)
        self._note("looked up")
        return "caller is Anna"

    @function_tool
    async def ask_seats(self) -> str:
        """Ask how many seats."""
        return f"{await Seats()} seats"


def script(chat_ctx: llm.ChatContext) -> Any:
    """Calls the tools that the caller names; says what the last of them gave."""
    last = chat_ctx.items[-1]
    if isinstance(last, llm.FunctionCallOutput):
        return f"it says {last.output}"
    users = said(chat_ctx, "user")
    if users and users[-1].startswith("please "):
        asked = [word.partition("=") for word in users[-1].split()[1:]]
        return [tool_call(name, f'{{"seats": "{to}"}}' if to else "{}") for name, _, to in asked]
    return f"you said {users[-1]}" if users else "going on"


async def handoffs(recall: Recall) -> list[tuple[str | None, str]]:
    """The handoffs in the records, from which label to which."""
    entries = await recall.entries(ROOM, 0, 1000)
    records = [r for e in entries if isinstance(e, RecordsEntry) for r in e.records]
    return [(r.previous, r.agent) for r in records if isinstance(r, Handoff)]


async def cut_off_in_billing(recall: Recall) -> None:
    """Another worker had the call, and died while its billing agent was active."""
    async with recall.resume(ROOM) as call:
        call.record_turn("assistant", "hello there", agent="reception")
        call.record_handoff("billing", previous="reception")
        call.record_turn("user", "my bill please")


async def say(line: Line, text: str, answer: str) -> None:
    """The caller says something and hears this answer."""
    await until(lambda: line.session.agent_state == "listening")
    line.stt.say(text)
    await until(lambda: answer in line.subtitles.text)


def context(agent: Agent) -> list[str]:
    return [text.strip() for text in said(agent.chat_ctx)]


# --- what is recorded -------------------------------------------------------------------------


async def test_every_handoff_is_recorded_and_nothing_is_released(open_recall: OpenRecall) -> None:
    note = Notes()
    agent = Reception(open_recall(), note)
    async with Line(agent, script).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await say(line, "please ask_seats", "how many seats")
        await say(line, "please seats_are=four", "it says four seats")
        await say(line, "please to_billing", "billing here")
        line.session.update_agent(Farewell(instructions="Say goodbye."))
        await until(lambda: line.session.current_agent.id == "farewell")
        await say(line, "goodbye", "you said goodbye")
        assert note.done == ["fresh", "reception exits", "billing enters", "billing exits"]
        assert agent.call.state is CallState.HOLDING
        assert agent.call.epoch == 1
        assert await agent.call.flush(2)
        assert await handoffs(open_recall()) == [
            ("reception", "seats"),
            ("seats", "reception"),
            ("reception", "billing"),
            ("billing", "farewell"),
        ]
    recorded = await open_recall().turns(ROOM)
    labels = [(turn.agent, turn.content.strip()) for turn in recorded if turn.role == "assistant"]
    assert labels == [
        ("reception", "hello there"),
        ("seats", "how many seats"),
        ("reception", "it says four seats"),
        ("billing", "billing here"),
        ("farewell", "you said goodbye"),
    ]


async def test_agents_7320_handoff_in_a_mixed_tool_batch(open_recall: OpenRecall) -> None:
    note = Notes()
    agent = Reception(open_recall(), note)
    async with Line(agent, script).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await say(line, "please to_billing look_up", "billing here")
        assert "looked up" in note.done
        await say(line, "please open_bill", "the bill is nine")
        assert await agent.call.flush(2)
    assert await handoffs(open_recall()) == [("reception", "billing")]
    assert (await open_recall().read(ROOM)).agent == "billing"


# --- who goes on ------------------------------------------------------------------------------


async def test_the_agent_that_was_active_comes_back_with_its_tools(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_billing(open_recall())
    note = Notes()
    agent = Reception(open_recall(), note, resume_agents={"billing": lambda: Billing(note)})
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my bill please" in line.subtitles.text)
        billing = line.session.current_agent
        assert isinstance(billing, Billing)
        assert note.done == ["resume"], "no greeting, and no goodbye, of either agent"
        assert context(billing)[2:4] == ["hello there", "my bill please"]
        assert line.prompts[-1][0] == "You do the bills."
        await say(line, "please open_bill", "the bill is nine")
        assert note.done == ["resume", "bill opened"]
        assert agent.call.state is CallState.HOLDING
        assert await agent.call.flush(2)
        assert (await handoffs(open_recall()))[-1] == ("reception", "billing")
    assert (await open_recall().turns(ROOM))[-1].agent == "billing"


async def test_brought_back_it_enters_as_ever_when_it_is_handed_over_to_again(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_billing(open_recall())
    note = Notes()
    agent = Reception(open_recall(), resume_agents={"billing": lambda: Billing(note)})
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my bill please" in line.subtitles.text)
        billing = line.session.current_agent
        line.session.update_agent(Farewell(instructions="Say goodbye."))
        await until(lambda: line.session.current_agent is not billing)
        await say(line, "no, wait", "you said no, wait")
        line.session.update_agent(billing)
        await until(lambda: "billing here" in line.subtitles.text)
    assert note.done[:2] == ["billing exits", "billing enters"]


async def test_it_comes_back_to_a_session_that_is_slow_to_start(open_recall: OpenRecall) -> None:
    """As the room's connection may be: until then a session forgets an agent it is given."""
    await cut_off_in_billing(open_recall())
    agent = Reception(open_recall(), resume_agents={"billing": Billing})
    line = Line(agent, script)
    begin = line.session._update_activity_task

    async def slow(*args: Any) -> None:
        await begin(*args)
        await anyio.sleep(0.3)

    line.session._update_activity_task = slow  # type: ignore[assignment,method-assign]
    async with line.open():
        await until(lambda: "you said my bill please" in line.subtitles.text)
        assert isinstance(line.session.current_agent, Billing)
        await say(line, "please open_bill", "the bill is nine")


async def test_it_comes_back_again_after_a_second_crash_before_it_spoke(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_billing(open_recall())
    agent = Reception(open_recall(), resume_agents={"other": Billing})
    async with Line(agent, lambda _: "").open():
        await until(lambda: agent.call.state is CallState.HOLDING)
        assert agent.call.briefing.agent == "billing"
    assert (await open_recall().read(ROOM)).agent == "billing", "nobody else had it meanwhile"


async def test_a_recall_agent_that_is_brought_back_says_its_own_words(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_billing(open_recall())
    recall = open_recall()
    resume = Mock(side_effect=recall.resume)
    recall.resume = resume  # type: ignore[method-assign]

    class BillingToo(RecallAgent):
        def __init__(self) -> None:
            super().__init__(
                instructions="You do the bills.", resume=ROOM, recall=recall, id="billing"
            )

        async def on_resume(self, briefing: Briefing | None) -> None:
            self.session.say("billing goes on")

    note = Notes()
    agent = Reception(open_recall(), note, resume_agents={"billing": BillingToo})
    async with Line(agent, script).open() as line:
        await until(lambda: "billing goes on" in line.subtitles.text)
        billing = line.session.current_agent
        assert isinstance(billing, BillingToo)
        assert billing.call is agent.call
        assert not resume.called, "it opens no second live call of its own"
        assert note.done == []
        assert context(billing)[2:4] == ["hello there", "my bill please"]
        assert line.subtitles.text.split().count("billing") == 1


async def test_without_a_factory_the_entry_agent_goes_on_with_one_warning(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    await cut_off_in_billing(open_recall())
    note = Notes()
    agent = Reception(open_recall(), note, resume_agents={"other": Billing})
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my bill please" in line.subtitles.text)
        await say(line, "hello", "you said hello")
        assert line.session.current_agent is agent
    assert note.done == ["resume", "reception exits"]
    warned = [r.getMessage() for r in caplog.records if "resume_agents" in r.getMessage()]
    assert warned == [
        "'billing' was the active agent when this call was cut off, and 'reception' goes on in "
        "its place: resume_agents={'billing': ...} brings it back"
    ]


async def test_records_that_come_too_late_bring_nobody_back(open_recall: OpenRecall) -> None:
    """The caller does not wait for them, and who has begun goes on, with what was said."""
    await cut_off_in_billing(open_recall())
    freezer = Freezer(timeout=0.3, frozen=True)
    recall = open_recall(faults=freezer, seed_wait=0.1, flush_wait=0.3)
    note = Notes()
    agent = Reception(recall, note, resume_agents={"billing": Billing})
    async with Line(agent, script).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        freezer.thaw()
        await until(lambda: agent.call.state is CallState.HOLDING, 15)
        await say(line, "please open", "it says")
        assert line.session.current_agent is agent
        assert "my bill please" in line.prompts[-1]
    assert note.done == ["fresh", "reception exits"]


async def test_a_session_that_closes_before_it_started_is_not_waited_for() -> None:
    line = Line(Agent(instructions="Be kind."))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(closes, line)
            assert not await bring_back.is_started(line.session)


async def closes(line: Line) -> None:
    line.session.emit("close", CloseEvent(reason=CloseReason.ERROR))


@pytest.mark.parametrize(
    "answer", [RuntimeError("no database"), asyncio.CancelledError("no database"), "no database"]
)
async def test_a_factory_that_fails_leaves_the_entry_agent(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    def broken() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    await cut_off_in_billing(open_recall())
    agent = Reception(open_recall(), resume_agents={"billing": broken})
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my bill please" in line.subtitles.text)
        assert line.session.current_agent is agent
    assert "no database" in caplog.text


async def test_a_fresh_call_and_the_entry_agents_own_call_bring_nobody_back(
    open_recall: OpenRecall,
) -> None:
    made: list[Agent] = []

    def factory() -> Agent:
        made.append(Billing())
        return made[-1]

    factories = {"billing": factory, "reception": factory}
    first = Reception(open_recall(), resume_agents=factories)
    async with Line(first, script).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await say(line, "my name is Anna", "you said my name is Anna")
        assert await first.call.flush(2)
    again = Reception(open_recall(), resume_agents=factories)
    async with Line(again, script).open() as line:
        await until(lambda: "you said my name is Anna" in line.subtitles.text)
        assert line.session.current_agent is again
        await say(line, "please to_billing", "billing here")
    assert made == []


async def test_a_standby_with_a_session_brings_it_back_when_it_acts(
    open_recall: OpenRecall,
) -> None:
    note = Notes()
    async with open_recall().resume(ROOM) as holder:
        agent = Reception(open_recall(), note, resume_agents={"billing": lambda: Billing(note)})
        line = Line(agent, script)
        async with line.open():
            await until(lambda: agent.call.state is CallState.STANDBY)
            holder.record_handoff("billing", previous="reception")
            holder.record_turn("user", "my bill please")
            await holder.flush(2)
            await anyio.sleep(0.1)
            assert not line.heard
            await holder.aclose()
            await until(lambda: "you said my bill please" in line.subtitles.text)
            assert isinstance(line.session.current_agent, Billing)
            assert "billing enters" not in note.done
            await say(line, "please open_bill", "the bill is nine")


async def test_a_task_that_was_under_way_is_done_and_its_agent_goes_on(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "a table please")
        call.record_handoff("seats", previous="reception")
        call.record_turn("assistant", "how many seats", agent="seats")

    def reply(chat_ctx: llm.ChatContext) -> Any:
        at_reception = "Be kind." in said(chat_ctx)
        return "reception goes on" if at_reception else script(chat_ctx)

    agent = Reception(open_recall(), resume_agents={"seats": Seats})
    async with Line(agent, reply).open() as line:
        await until(lambda: "you said a table please" in line.subtitles.text)
        assert line.session.current_agent.id == "seats"
        await say(line, "please seats_are=four", "reception goes on")
        assert line.session.current_agent is agent
        assert "how many seats" in context(agent)
        assert agent.call.state is CallState.HOLDING


# --- what an agent knows that is handed over to -----------------------------------------------


@pytest.mark.parametrize("had_part", [False, True])
async def test_an_agent_that_begins_empty_is_told_what_it_knew_before(
    open_recall: OpenRecall, had_part: bool
) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "my number is seven")
        if had_part:
            call.record_turn("assistant", "seven noted", agent="billing")
        call.record_turn("assistant", "back here", agent="reception")
    agent = Reception(open_recall())
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        line.session.update_agent(billing := Billing())
        await until(lambda: "billing here" in line.subtitles.text)
        await say(line, "and now", "you said and now")
        assert ("my number is seven" in context(billing)) is had_part
        assert ("my number is seven" in line.prompts[-1]) is had_part


async def test_an_agent_that_is_given_a_part_of_the_conversation_keeps_to_that(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_billing(open_recall())
    agent = Reception(open_recall())
    async with Line(agent, script).open() as line:
        await until(lambda: "you said my bill please" in context(agent))
        short = agent.chat_ctx.copy(exclude_instructions=True).truncate(max_items=1)
        line.session.update_agent(billing := Billing(chat_ctx=short))
        await until(lambda: "billing here" in line.subtitles.text)
        await say(line, "and now", "you said and now")
        assert "hello there" not in context(billing)
        assert context(billing)[1] == "you said my bill please"
