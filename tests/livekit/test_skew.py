"""The successor is another version of the application: other tools, another prompt, other data."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from livekit.agents import Agent, function_tool, llm

from recall_livekit import Recall, RecallAgent, attach
from recall_livekit.testing.voices import said, tool_call

from ..conftest import OpenRecall
from .line import Line, until
from .test_agent import ROOM

pytestmark = pytest.mark.anyio


@dataclasses.dataclass
class Order:
    """What this version keeps; the last one had `seats` as a text, and no `name`."""

    name: str
    seats: int = 0


class Successor(RecallAgent):
    def __init__(self, recall: Recall, **options: Any) -> None:
        super().__init__(instructions="The new prompt.", resume=ROOM, recall=recall, **options)

    @function_tool
    async def new_tool(self) -> str:
        """A tool of this version."""
        return "done anew"


async def cut_off_in_the_old_version(recall: Recall) -> None:
    """It had called two tools that the new version does not have: one ended, one did not."""
    async with recall.resume(ROOM) as call:
        call.record_userdata({"seats": "four"})
        call.record_turn("user", "book a table")
        done = await call.begin_action("find_table", action_class="pure", arguments='{"seats": 4}')
        call.end_action(done.key, "done", result="table nine")
        call.record_turn("assistant", "table nine is free", agent="old_agent")
        await call.begin_action("book_table", action_class="external", arguments='{"table": 9}')


def reply(chat_ctx: llm.ChatContext) -> Any:
    last = chat_ctx.items[-1]
    if isinstance(last, llm.FunctionCallOutput):
        return f"it says {last.output}"
    users = said(chat_ctx, "user")
    if users[-1].startswith("please "):
        return [tool_call(users[-1].split()[1])]
    return f"you said {users[-1]}"


def pairs(chat_ctx: llm.ChatContext) -> dict[str, str]:
    """The tool calls of a context with their outputs; each must have one."""
    calls = {item.call_id: item.name for item in chat_ctx.items if item.type == "function_call"}
    outputs = {
        item.call_id: item.output for item in chat_ctx.items if item.type == "function_call_output"
    }
    assert calls.keys() == outputs.keys()
    return {name: outputs[call_id] for call_id, name in calls.items()}


async def check(line: Line, agent: Agent) -> None:
    """The calls of tools that it does not know are there, and stay there."""
    await until(lambda: "you said book a table" in line.subtitles.text)
    await until(lambda: line.session.agent_state == "listening")
    for told in (agent.chat_ctx, line.session.history, line.model.prompts[-1]):
        known = pairs(told)
        assert known["find_table"] == "table nine"
        assert "may have happened" in known["book_table"]
    prompts = [text for text in line.prompts[-1] if "prompt" in text]
    assert prompts == ["The new prompt."]


async def test_calls_of_tools_that_it_does_not_know_stay_in_its_history(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_the_old_version(open_recall())
    agent = Successor(open_recall())
    async with Line(agent, reply).open() as line:
        await check(line, agent)
        line.stt.say("please new_tool")
        await until(lambda: "it says done anew" in line.subtitles.text)
        assert {"find_table", "book_table", "new_tool"} <= pairs(line.model.prompts[-1]).keys()


async def test_the_same_for_an_agent_of_another_base(open_recall: OpenRecall) -> None:
    await cut_off_in_the_old_version(open_recall())
    agent = Agent(instructions="The new prompt.")
    line = Line(agent, reply)
    attached = attach(line.session, resume=ROOM, recall=open_recall())
    async with line.open():
        await check(line, agent)
    await attached.closed()


async def test_the_same_for_an_agent_that_is_brought_back(open_recall: OpenRecall) -> None:
    await cut_off_in_the_old_version(open_recall())

    def old_agent() -> Agent:
        return Agent(instructions="The new prompt.")

    agent = Successor(open_recall(), resume_agents={"old_agent": old_agent})
    async with Line(agent, reply).open() as line:
        await until(lambda: line.session.current_agent is not agent)
        await check(line, line.session.current_agent)


async def test_a_tool_that_is_gone_and_called_again_is_told_so_and_the_call_goes_on(
    open_recall: OpenRecall,
) -> None:
    await cut_off_in_the_old_version(open_recall())
    agent = Successor(open_recall())
    async with Line(agent, reply).open() as line:
        await check(line, agent)
        line.stt.say("please book_table")
        await until(lambda: "it says" in line.subtitles.text)
        assert "done anew" not in line.subtitles.text
        await until(lambda: line.session.agent_state == "listening")
        line.stt.say("please new_tool")
        await until(lambda: "it says done anew" in line.subtitles.text)


async def test_data_of_another_schema_comes_back_raw_with_one_warning(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    await cut_off_in_the_old_version(open_recall())
    agent = Successor(open_recall(), userdata_type=Order)
    async with Line(agent, reply).open() as line:
        await check(line, agent)
        assert line.session.userdata == {"seats": "four"}
        line.session.userdata = Order("Anna", 4)
        line.stt.say("please new_tool")
        await until(lambda: "it says done anew" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        assert await agent.call.flush(2)
    assert caplog.text.count("does not fit its type") == 1
    assert (await open_recall().read(ROOM)).userdata == {"name": "Anna", "seats": 4}
