"""Every tool of a session is begun before it runs and ended when it ends, in a whole voice
pipeline; a worker that does not have the call runs none."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import anyio
import pytest
from livekit.agents import (
    Agent,
    AgentTask,
    ModelSettings,
    RunContext,
    StopResponse,
    ToolError,
    function_tool,
    llm,
    mock_tools,
)
from livekit.agents.llm import ToolFlag
from livekit.agents.llm.async_toolset import AsyncToolset

from recall_livekit import Action, action, action_key
from recall_livekit.actions import mark_of
from recall_livekit.livekit.tools.actions import REFUSED, UNRECORDED
from recall_livekit.livekit.tools.results import result_text
from recall_livekit.testing.voices import tool_call

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, until
from .shop import CARD, ROOM, Shop, ask, charging, noted, shop, the_action, tool_outputs

pytestmark = pytest.mark.anyio
# --- each kind of tool --------------------------------------------------------------------------


async def test_a_decorated_tool_is_begun_before_it_runs_and_ended_after(
    open_recall: OpenRecall,
) -> None:
    seen: list[Action] = []
    reader = open_recall()

    class Till(Shop):
        @function_tool
        async def charge(self, card: str) -> str:
            """Charge the card."""
            seen.extend((await reader.read(ROOM)).actions)
            assert action_key() == seen[0].key
            return f"charged {card}"

    agent = Till(open_recall())
    async with shop(agent, tool_call("charge", CARD)) as line:
        await ask(line)
        await until(lambda: "it says charged seven" in line.subtitles.text)
        assert await agent.call.flush(2)
        [begun] = seen
        assert (begun.tool, begun.action_class, begun.status) == ("charge", "external", "started")
        assert json.loads(begun.arguments) == {"card": "seven"}
        assert begun.agent == "till"
        ended = await the_action(reader)
        assert (ended.status, ended.result, ended.key) == ("done", "charged seven", begun.key)
        assert not ended.unrecorded


class McpLike(llm.Toolset):
    """What LiveKit makes of an MCP server: raw tools in a toolset."""

    def __init__(self, log: list[object]) -> None:
        schema = {"name": "weigh", "description": "", "parameters": {"type": "object"}}

        async def weigh(raw_arguments: dict[str, object]) -> dict[str, object]:
            log.append(raw_arguments)
            return {"kilos": 3}

        super().__init__(id="mcp", tools=[function_tool(weigh, raw_schema=schema)])


async def test_a_raw_tool_of_a_toolset_is_recorded_and_its_result_is_json(
    open_recall: OpenRecall,
) -> None:
    log: list[object] = []
    agent = Shop(open_recall(), McpLike(log))
    async with shop(agent, tool_call("weigh", '{"what": ["tea", 2]}')) as line:
        await ask(line)
        assert await agent.call.flush(2)
    one = await the_action(open_recall())
    assert log == [{"what": ["tea", 2]}]
    assert (one.status, one.result) == ("done", '{"kilos": 3}')
    assert json.loads(one.arguments) == {"what": ["tea", 2]}


@pytest.mark.parametrize("nested", [False, True])
async def test_a_tool_of_an_async_toolset_ends_when_it_ends_not_at_its_first_update(
    open_recall: OpenRecall, nested: bool
) -> None:
    go_on, keys = asyncio.Event(), list[str]()

    @function_tool
    async def book(ctx: RunContext[Any]) -> str:
        """Book a flight."""
        keys.append(action_key())
        await ctx.update("looking")
        await go_on.wait()
        return "booked"

    tools: llm.Toolset = AsyncToolset(id="flights", tools=[book])
    agent = Shop(open_recall(), llm.Toolset(id="outer", tools=[tools]) if nested else tools)
    async with shop(agent, tool_call("book")) as line:
        await ask(line)
        assert await agent.call.flush(2)
        reader = open_recall()
        assert [a.key for a in (await reader.read(ROOM)).actions] == keys, "it runs still"
        go_on.set()
        await until(lambda: not agent.call._open_calls._running)
        assert await agent.call.flush(2)
        assert (await the_action(reader)).result == "booked"


async def test_a_toolset_that_comes_later_and_a_later_agents_tools_are_recorded(
    open_recall: OpenRecall,
) -> None:
    log: list[str] = []

    @function_tool
    async def later() -> str:
        """A tool that comes later."""
        log.append(action_key())
        return "later"

    agent = Shop(open_recall())
    second = Agent(instructions="Second.", tools=[charging(log)])
    async with shop(agent, tool_call("later"), tool_call("charge", CARD)) as line:
        await agent.update_tools([AsyncToolset(id="late", tools=[later])])
        await ask(line)
        line.session.update_agent(second)
        await until(lambda: line.session.current_agent is second)
        await ask(line)
        assert await agent.call.flush(2)
    told = [one.action for one in await noted(open_recall())]
    assert [(a.tool, a.status) for a in told] == [("later", "done"), ("charge", "done")]
    assert log == [told[0].key, "seven"]
    assert told[0].agent != told[1].agent


async def test_the_tools_of_a_task_are_recorded_inside_of_the_tool_that_awaits_it(
    open_recall: OpenRecall,
) -> None:
    class Consent(AgentTask[str]):
        """Asks whether the caller agrees."""

        def __init__(self) -> None:
            super().__init__(instructions="Ask for consent.")

        async def on_enter(self) -> None:
            self.session.say("do you agree")

        @function_tool
        async def agree(self) -> None:
            """The caller agrees."""
            self.complete("yes")

    @function_tool
    async def get_consent() -> str:
        """Get it."""
        return f"consent: {await Consent()}"

    agent = Shop(open_recall(), get_consent)
    async with shop(agent, tool_call("get_consent"), tool_call("agree")) as line:
        line.stt.say("please")
        await until(lambda: "do you agree" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        line.stt.say("yes")
        await until(lambda: "consent: yes" in line.subtitles.text)
        assert await agent.call.flush(2)
    told = [(n.action.tool, n.action.status, n.action.agent) for n in await noted(open_recall())]
    assert told == [("get_consent", "done", "shop"), ("agree", "done", "consent")]


async def test_two_calls_at_once_of_an_agent_that_overrides_its_hooks_are_both_recorded(
    open_recall: OpenRecall,
) -> None:
    class Stubborn(Shop):
        async def on_enter(self) -> None:
            self.session.say("hello")

        async def llm_node(
            self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
        ) -> Any:
            if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
                return "both done"
            calls = [tool_call("charge", CARD), tool_call("charge", '{"card": "eight"}')]
            delta = llm.ChoiceDelta(role="assistant", tool_calls=calls)
            return each([llm.ChatChunk(id="1", delta=delta)])

    async def each(chunks: list[llm.ChatChunk]) -> AsyncIterator[llm.ChatChunk]:
        for chunk in chunks:
            yield chunk

    log: list[str] = []
    agent = Stubborn(open_recall(), charging(log))
    async with shop(agent) as line:
        await until(lambda: "hello" in line.subtitles.text)
        await ask(line)
        assert await agent.call.flush(2)
    told = [n.action for n in await noted(open_recall())]
    assert [a.status for a in told] == ["done", "done"]
    assert len({a.key for a in told}) == 2
    assert sorted(log) == ["eight", "seven"]


async def test_a_tool_that_a_test_mocks_is_recorded_too(open_recall: OpenRecall) -> None:
    log: list[str] = []
    agent = Shop(open_recall(), charging(log))
    with mock_tools(Shop, {"charge": lambda card: f"mocked {card}"}):
        async with shop(agent, tool_call("charge", CARD)) as line:
            await ask(line)
            assert await agent.call.flush(2)
    assert (await the_action(open_recall())).result == "mocked seven"
    assert log == []


class Metered(llm.FunctionTool[..., Any]):
    """A tool of an application's own class."""

    def __init__(self, tool: llm.FunctionTool[..., Any], price: int) -> None:
        super().__init__(tool._func, tool.info)
        self.price = price


async def test_a_tool_of_a_class_of_its_own_runs(open_recall: OpenRecall) -> None:
    log: list[str] = []
    agent = Shop(open_recall(), Metered(charging(log), 3))
    async with shop(agent, tool_call("charge", CARD)) as line:
        await ask(line)
        assert await agent.call.flush(2)
    assert log == ["seven"]
    assert (await the_action(open_recall())).status == "done"


def test_whatever_a_tool_returns_is_told_somehow() -> None:
    class Sealed:
        def __str__(self) -> str:
            raise OSError("sealed")

    assert result_text(Sealed()) == "[a Sealed that cannot be shown]"


# --- how they end -------------------------------------------------------------------------------


async def test_what_a_tool_raises_is_how_it_went(open_recall: OpenRecall) -> None:
    @function_tool
    async def decline() -> None:
        """Say no."""
        raise ToolError("card declined")

    @function_tool
    async def break_down() -> None:
        """Fall over."""
        raise OSError("no route")

    @action("idempotent")
    @function_tool
    async def lose_the_answer() -> None:
        """Do it, perhaps."""
        raise OSError("no answer")

    @function_tool
    async def be_silent() -> None:
        """Say nothing."""
        raise StopResponse

    @function_tool
    async def return_it() -> ToolError:
        """LiveKit takes it for raised."""
        return ToolError("declined too")

    tools: list[Any] = [decline, break_down, lose_the_answer, be_silent, return_it]
    agent = Shop(open_recall(), *tools)
    async with shop(agent, *(tool_call(tool.info.name) for tool in tools)) as line:
        for _ in tools:
            await ask(line)
        assert await agent.call.flush(2)
    told = [(n.action.tool, n.action.status, n.action.result) for n in await noted(open_recall())]
    assert told == [
        ("decline", "failed", "card declined"),
        ("break_down", "unknown", "An internal error occurred (OSError)"),
        ("lose_the_answer", "unknown", "An internal error occurred (OSError)"),
        ("be_silent", "done", ""),
        ("return_it", "failed", "declined too"),
    ]


@pytest.mark.parametrize(
    ("action_class", "status"),
    [("pure", "abandoned"), ("idempotent", "unknown"), ("external", "unknown")],
)
async def test_a_cancelled_tool_may_have_happened(
    open_recall: OpenRecall, action_class: Any, status: str
) -> None:
    began = asyncio.Event()

    @action(action_class)
    @function_tool(flags=ToolFlag.CANCELLABLE)
    async def order() -> None:
        """Order it."""
        began.set()
        await asyncio.sleep(60)

    agent = Shop(open_recall(), order)
    async with shop(agent, tool_call("order")) as line:
        line.stt.say("please")
        await until(began.is_set)
        executor: Any = agent._get_activity_or_raise()._tool_executor
        await executor.cancel_all()
        await until(lambda: not agent.call._open_calls._running)
        assert await agent.call.flush(2)
    assert (await the_action(open_recall())).status == status


async def test_a_call_of_an_unknown_tool_is_recorded_as_failed(open_recall: OpenRecall) -> None:
    agent = Shop(open_recall(), charging([]))
    async with shop(agent, tool_call("fly", '{"to": "Rome"}')) as line:
        await ask(line)
        assert await agent.call.flush(2)
        briefing = await open_recall().read(ROOM)
    [one] = briefing.finished
    assert (one.tool, one.status) == ("fly", "failed")
    assert "Unknown function" in (one.result or "")
    assert briefing.actions == ()


async def test_arguments_that_do_not_fit_never_began(open_recall: OpenRecall) -> None:
    log: list[str] = []
    agent = Shop(open_recall(), charging(log))
    async with shop(agent, tool_call("charge", '{"cart": 7}')) as line:
        await ask(line)
        assert await agent.call.flush(2)
    one = await the_action(open_recall())
    assert (one.status, one.action_class, log) == ("failed", "pure", [])


async def test_a_result_that_is_too_long_is_kept_and_its_record_says_where(
    open_recall: OpenRecall,
) -> None:
    text = "word " * 3000
    agent = Shop(open_recall(), charging([], text))
    async with shop(agent, tool_call("charge", CARD)) as line:
        await ask(line)
        await until(lambda: not agent._live._background._tasks)  # type: ignore[union-attr]
        assert await agent.call.flush(2)
        reader = open_recall()
        one = await the_action(reader)
        assert one.result_ref is not None
        assert one.result is not None
        assert len(one.result) <= 1000
        assert await reader.fetch_output(ROOM, one.result_ref) == text
        [shown] = (await reader.read(ROOM)).finished
        assert shown.result_ref == one.result_ref
        assert json.loads(shown.arguments) == {"card": "seven"}


@pytest.mark.parametrize("redacts", [False, True])
async def test_a_long_result_that_cannot_be_kept_says_so(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, redacts: bool
) -> None:
    """And a number that the cut goes through is no less redacted."""
    card = "4000123456789010"
    text = " ".join([card] * 1000)
    redact = (lambda told: told.replace(card, "*")) if redacts else None
    agent = Shop(open_recall(output_wait=0.1), charging([], text), redact=redact)

    async def away(*_: object) -> str | None:
        await anyio.sleep(60)
        return None

    monkeypatch.setattr(agent.call._transport, "put_output", away)
    async with shop(agent, tool_call("charge", CARD)) as line:
        await ask(line)
        await until(lambda: not agent._live._background._tasks)  # type: ignore[union-attr]
        assert await agent.call.flush(2)
    one = await the_action(open_recall())
    assert one.result_ref is None
    assert "the rest is not kept]" in (one.result or "")
    assert ("4000" in (one.result or "")) is not redacts


# --- refusing -----------------------------------------------------------------------------------


async def test_while_another_worker_has_the_call_no_tool_runs(open_recall: OpenRecall) -> None:
    """A model that runs on a fenced worker is told, and a standby's too."""
    log: list[str] = []
    agent = Shop(open_recall(), charging(log))
    async with shop(agent) as line, open_recall().resume(ROOM, if_held="steal"):
        await until(lambda: not agent.call.may_act)
        executor: Any = agent._get_activity_or_raise()._tool_executor
        with pytest.raises(ToolError, match="took this call over"):
            await executor.execute(
                tool=agent.tools[0], run_ctx=a_context(line), raw_arguments={"card": "seven"}
            )
    assert log == []
    assert "took this call over" in REFUSED


def a_context(line: Line) -> Any:
    """What LiveKit runs a tool with, as far as it is looked at."""
    called = llm.FunctionCall(call_id="call_1", name="charge", arguments=CARD)
    speech = line.session.say("")
    activity = line.session.current_agent._get_activity_or_raise()
    return RunContext(
        activity=activity, session=line.session, speech_handle=speech, function_call=called
    )


async def test_a_worker_that_loses_the_call_while_it_begins_does_not_run_it(
    open_recall: OpenRecall,
) -> None:
    log: list[str] = []
    freezer = Freezer(timeout=5.0)
    agent = Shop(open_recall(faults=freezer, action_wait=4.0), charging(log))
    async with shop(agent, tool_call("charge", CARD)) as line:
        assert await agent.call.holding(5)
        freezer.freeze()
        line.stt.say("please")
        await until(lambda: agent.call.lag > 0)
        async with open_recall().resume(ROOM, if_held="steal"):
            freezer.thaw()
            await until(lambda: not agent.call.may_act)
            await until(lambda: any(o.is_error for o in tool_outputs(line)), 10)
    assert log == []


async def test_without_a_store_a_tool_runs_unrecorded_after_its_wait_or_refuses_by_choice(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []

    @function_tool
    @action("external", if_unrecorded="refuse")
    async def wire_money() -> str:
        """Wire it."""
        log.append("wired")
        return "wired"

    freezer = Freezer(timeout=0.3)
    agent = Shop(open_recall(faults=freezer, action_wait=0.2), charging(log), wire_money)
    async with shop(agent, tool_call("charge", CARD), tool_call("wire_money")) as line:
        assert await agent.call.holding(5)
        freezer.freeze()
        await ask(line)
        await ask(line)
        assert tool_outputs(line)[-1].output == UNRECORDED
        freezer.thaw()
        assert await agent.call.flush(10)
    assert log == ["seven"]
    ran, refused = [one.action for one in await noted(open_recall())]
    assert (ran.status, ran.unrecorded) == ("done", True)
    assert (refused.status, refused.unrecorded) == ("abandoned", True)
    assert "the tool charge runs unrecorded" in caplog.text
    assert (await open_recall().read(ROOM)).actions == ()


async def test_a_pure_tool_waits_for_nobody_and_an_idempotent_one_not_for_ever(
    open_recall: OpenRecall,
) -> None:
    keys: list[str] = []

    @function_tool
    @action("pure")
    async def look() -> str:
        """Look it up."""
        return "there"

    @action("idempotent")
    @function_tool
    async def put() -> str:
        """Put it."""
        keys.append(action_key())
        return "put"

    freezer = Freezer(timeout=0.3)
    agent = Shop(open_recall(faults=freezer, action_wait=2.0), look, put)
    async with shop(agent, tool_call("look"), tool_call("put")) as line:
        assert await agent.call.holding(5)
        freezer.freeze()
        began = time.monotonic()
        await ask(line)
        assert time.monotonic() - began < 1.9
        await ask(line)
        assert time.monotonic() - began > 2.0
        freezer.thaw()
        assert await agent.call.flush(10)
    told = [one.action for one in await noted(open_recall())]
    assert [(a.action_class, a.unrecorded) for a in told] == [
        ("pure", False),
        ("idempotent", True),
    ]
    assert keys == [told[1].key]


# --- without LiveKit's private names ------------------------------------------------------------


async def test_without_an_executor_calls_are_recorded_from_events_with_one_warning(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("recall_livekit.livekit.tools.actions.executors_of", lambda _: iter(()))
    log: list[str] = []

    @function_tool
    async def decline() -> None:
        """Say no."""
        raise ToolError("declined")

    agent = Shop(open_recall(), charging(log), decline)
    async with shop(agent, tool_call("charge", CARD), tool_call("decline")) as line:
        await ask(line)
        await ask(line)
        assert await agent.call.flush(2)
    assert [
        (n.action.tool, n.action.status, n.action.result) for n in await noted(open_recall())
    ] == [
        ("charge", "done", "charged"),
        ("decline", "failed", "declined"),
    ]
    assert caplog.text.count("no tool executor that we know") == 1


def test_a_key_outside_of_a_tool_is_a_new_one_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert action_key() != action_key()
    assert "outside of a recorded tool call" in caplog.text


def test_a_mark_holds_in_any_order_and_on_a_bound_tool() -> None:
    class Desk(Agent):
        @function_tool
        @action("pure")
        async def below(self) -> None:
            """Below."""

        @action("pure")
        @function_tool(on_duplicate="confirm")
        async def above(self) -> None:
            """Above."""

        @function_tool
        async def later(self) -> None:
            """Later."""

        @function_tool
        async def never(self) -> None:
            """Never."""

    desk = Desk(instructions="")
    action("pure")(desk.later)
    classes = {tool.id: mark_of(tool).action_class for tool in desk.tools}
    assert classes == {"below": "pure", "above": "pure", "later": "pure", "never": "external"}


def test_what_cannot_be_marked_or_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be marked"):
        action("pure")(7)
    with pytest.raises(ValueError, match="pure, idempotent or external"):
        action(cast("Any", "safe"))
    with pytest.raises(ValueError, match="run or refuse"):
        action("external", if_unrecorded=cast("Any", "never"))
