"""The real chat and Responses classes: what they send of a call that goes on is accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from livekit.agents import RunContext, function_tool, llm

from recall_livekit import Recall, RecallAgent

from ..conftest import OpenRecall
from ..livekit.line import until
from .calls import ODD_TURNS, ROOM, earlier_call, odd_call
from .line import chat_model, open_line, responses_model
from .server import Call, OpenAIServer, Reply, texts

pytestmark = pytest.mark.anyio

Make = Callable[[OpenAIServer], llm.LLM[Any]]
MODELS = [
    pytest.param(chat_model, id="chat"),
    pytest.param(lambda server: responses_model(server, websocket=False), id="responses"),
    pytest.param(lambda server: responses_model(server, websocket=True), id="responses-ws"),
]
every_model = pytest.mark.parametrize("make", MODELS)


class Support(RecallAgent):
    def __init__(self, recall: Recall) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall)
        self.charged = 0

    @function_tool
    async def charge(self, context: RunContext[Any], euros: int) -> str:
        """Charge the caller."""
        self.charged += euros
        return f"{euros} charged"


def answer(items: Sequence[dict[str, Any]]) -> Reply:
    """Charges when it is told to, and says what came of it."""
    role, text = texts(items)[-1]
    if (role, text) == ("user", "charge me"):
        return Call("charge", '{"euros": 20}')
    return text if role == "tool" else "where were we"


@every_model
async def test_the_whole_of_a_call_is_accepted(
    open_recall: OpenRecall, server: OpenAIServer, make: Make
) -> None:
    await earlier_call(open_recall, tools=True)
    async with open_line(Support(open_recall()), make(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    said = texts(server.prompts[-1])
    assert said[0] == ("system", "Be kind.")
    assert [role for role, _ in said[1:3]] == ["developer", "assistant"]
    assert ("user", "a table for four") in said
    assert ("call", '{"euros": 20}') in [(role, text[7:-1]) for role, text in said]
    assert said[-2] == ("assistant", "it is booked")


@every_model
async def test_a_conversation_goes_on_with_tools(
    open_recall: OpenRecall, server: OpenAIServer, make: Make
) -> None:
    """The Responses class sends only what is new after its first request: what we put in front
    of the history must not break that."""
    server.reply = answer
    await earlier_call(open_recall, tools=True)
    agent = Support(open_recall())
    async with open_line(agent, make(server)) as line:
        await until(lambda: "where were we" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        line.stt.say("charge me")
        await until(lambda: "20 charged" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        line.stt.say("and again")
        await until(lambda: line.subtitles.text.count("where were we") == 2)
    assert agent.charged == 20
    last = texts(server.prompts[-1])
    assert last.count(("user", "a table for four")) == 1
    assert last.count(("user", "charge me")) == 1
    assert last[-1] == ("user", "and again")


@every_model
async def test_agents_5092_call_without_output(
    open_recall: OpenRecall, server: OpenAIServer, make: Make
) -> None:
    """A worker that died in a tool leaves a call without output: it is told as one that may have
    happened, or the API refuses the whole request."""
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "charge me")
        call.record_action("charge", arguments='{"euros": 20}', call_id="c" * 80)
    async with open_line(Support(open_recall()), make(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    said = texts(server.prompts[0])
    at = said.index(("call", 'charge({"euros": 20})'))
    role, told = said[at + 1]
    assert role == "tool"
    assert "may have happened" in told


@every_model
async def test_agents_995_orphan_tool_result(
    open_recall: OpenRecall, server: OpenAIServer, make: Make
) -> None:
    """A seed is cut where the budget ends: never between a call and its output."""
    async with open_recall().resume(ROOM) as call:
        for place in range(12):
            key = call.record_action("look", arguments=f'{{"place": {place}}}', call_id=f"c{place}")
            call.record_action("look", key=key, status="done", result=f"found {place} " * 30)
            call.record_turn("user", f"and {place}? " * 20)
    agent = Support(open_recall(briefing_tokens=1000))
    async with open_line(agent, make(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    roles = [role for role, _ in texts(server.prompts[0])]
    assert roles.count("call") == roles.count("tool")
    assert len(roles) < 30


@every_model
async def test_records_that_no_model_wrote_are_accepted_too(
    open_recall: OpenRecall, server: OpenAIServer, make: Make
) -> None:
    await odd_call(open_recall)
    async with open_line(Support(open_recall()), make(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    said = texts(server.prompts[0])
    assert [text for role, text in said if role == "user"] == ODD_TURNS
