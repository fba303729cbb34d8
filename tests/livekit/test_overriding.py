"""An agent that overrides every hook of LiveKit's without `super()` is kept all the same."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import anyio
import pytest
from livekit import rtc
from livekit.agents import Agent, ModelSettings, function_tool, llm, stt
from livekit.agents.types import TimedString

from recall_livekit import CallState, Recall, RecallAgent
from recall_livekit.testing.voices import said, tool_call

from ..conftest import OpenRecall
from .line import Line, until
from .test_agent import ROOM, talk, turns

pytestmark = pytest.mark.anyio


class Stubborn(RecallAgent):
    """Has its own everything, and calls `super()` nowhere."""

    def __init__(self, recall: Recall, **options: Any) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall, **options)
        self.hooks: list[str] = []
        self.asked: list[llm.ChatContext] = []
        self.charged = 0

    async def on_enter(self) -> None:
        self.hooks.append("on_enter")
        if await self.fresh():
            self.session.say("welcome to us")
        else:
            self.session.generate_reply(instructions="Go on.")

    async def on_exit(self) -> None:
        self.hooks.append("on_exit")

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        self.hooks.append("on_user_turn_completed")

    async def stt_node(
        self, audio: AsyncIterable[rtc.AudioFrame], model_settings: ModelSettings
    ) -> AsyncIterator[stt.SpeechEvent | str]:
        async for event in Agent.default.stt_node(self, audio, model_settings):
            yield event

    async def llm_node(
        self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> AsyncIterator[llm.ChatChunk | str | Any]:
        self.hooks.append("llm_node")
        self.asked.append(chat_ctx.copy())
        async for chunk in Agent.default.llm_node(self, chat_ctx, tools, model_settings):
            yield chunk

    async def transcription_node(
        self, text: AsyncIterable[str | TimedString], model_settings: ModelSettings
    ) -> AsyncIterator[str | TimedString]:
        self.hooks.append("transcription_node")
        async for word in text:
            yield word

    async def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncIterator[rtc.AudioFrame]:
        async for frame in Agent.default.tts_node(self, text, model_settings):
            yield frame

    @function_tool
    async def charge(self) -> str:
        """Charge the card."""
        self.charged += 1
        return "card charged"

    @function_tool
    async def hand_over(self) -> Agent:
        """Hand over to another agent."""
        return Other(instructions="You are the other.", chat_ctx=self.chat_ctx)


class Other(Agent):
    """Hears the caller once it has said so."""

    async def on_enter(self) -> None:
        self.session.say("this is the other")


def reply(chat_ctx: llm.ChatContext) -> Any:
    last = chat_ctx.items[-1]
    if isinstance(last, llm.FunctionCallOutput):
        return f"it says {last.output}"
    users = said(chat_ctx, "user")
    if users and users[-1].startswith("please "):
        return [tool_call(users[-1].split()[1])]
    return f"you said {users[-1]}" if users else "no word yet"


async def test_a_fresh_call_is_greeted_by_it_and_recorded(open_recall: OpenRecall) -> None:
    agent = Stubborn(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "welcome to us" in line.subtitles.text)
        await talk(line, "my number is seven")
        assert await agent.call.flush(2)
        assert agent.call.state is CallState.HOLDING
    assert await turns(open_recall()) == [
        ("assistant", "welcome to us"),
        ("user", "my number is seven"),
        ("assistant", "you said my number is seven"),
    ]
    assert {"on_enter", "llm_node", "transcription_node", "on_user_turn_completed"} <= {
        *agent.hooks
    }


async def test_a_call_that_goes_on_is_in_its_first_model_call_and_is_not_greeted(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "my number is seven")
    agent = Stubborn(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        assert "welcome" not in line.subtitles.text
        first = said(agent.asked[0])
        assert first[1].startswith("You are going on with a call")
        assert first[2] == "my number is seven"
        await talk(line, "and eight")
        assert await agent.call.flush(2)
    assert ("user", "and eight") in await turns(open_recall())


async def test_its_words_are_known_as_spoken_when_it_is_cut_off(open_recall: OpenRecall) -> None:
    story = " ".join(f"word{n}" for n in range(60))
    agent = Stubborn(open_recall(partial_interval=0.05))
    async with Line(agent, lambda _: story).open() as line:
        await until(lambda: "welcome to us" in line.subtitles.text)
        agent.session.generate_reply()
        await until(lambda: "word5" in line.subtitles.text)
        reader = open_recall()
        with anyio.fail_after(5):
            while not (cut := [p.text for p in (await reader.read(ROOM)).partials]):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert "word0" in cut[0]
        assert "word59" not in cut[0]


async def test_as_a_standby_it_is_silent_and_takes_over(open_recall: OpenRecall) -> None:
    first = Stubborn(open_recall())
    async with Line(first, reply).open() as speaking:
        await until(lambda: speaking.heard)
        second = Stubborn(open_recall())
        line = Line(second, reply)
        async with line.open():
            await until(lambda: second.call.state is CallState.STANDBY)
            second.session.generate_reply()
            await talk(speaking, "still with the first")
            assert not line.heard
            assert line.subtitles.text == ""
            await first.call.flush(2)
            await speaking.session.aclose()
            await until(lambda: "you said still with the first" in line.subtitles.text)
            assert "welcome" not in line.subtitles.text
            assert second.call.state is CallState.HOLDING


async def test_a_handoff_is_recorded_and_the_other_agent_too(open_recall: OpenRecall) -> None:
    agent = Stubborn(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "welcome to us" in line.subtitles.text)
        await until(lambda: agent.session.agent_state == "listening")
        line.stt.say("please hand_over")
        await until(lambda: "this is the other" in line.subtitles.text)
        assert "on_exit" in agent.hooks
        await talk(line, "who is there")
        assert await agent.call.flush(2)
        assert agent.call.state is CallState.HOLDING
    recorded = await open_recall().turns(ROOM)
    assert recorded[-1].agent == "other"
    assert (await open_recall().read(ROOM)).agent == "other"


async def test_its_tools_are_recorded_and_refuse_once_it_is_fenced(
    open_recall: OpenRecall,
) -> None:
    agent = Stubborn(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "welcome to us" in line.subtitles.text)
        await until(lambda: agent.session.agent_state == "listening")
        line.stt.say("please charge")
        await until(lambda: "it says card charged" in line.subtitles.text)
        assert await agent.call.flush(2)
        [charged] = (await open_recall().read(ROOM)).finished
        assert (charged.tool, charged.status) == ("charge", "done")
        async with open_recall().resume(ROOM, if_held="steal"):
            await until(lambda: not agent.call.may_act)
            heard = line.speaker.seconds
            agent.session.generate_reply(user_input="please charge")
            await until(lambda: "took this call over" in str(agent.asked[-1].items[-1]))
            assert line.speaker.seconds == heard
    assert agent.charged == 1


async def test_brought_back_it_says_its_own_words(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_handoff("stubborn", previous="entry")
        call.record_turn("user", "my number is seven")

    class Entry(RecallAgent):
        async def on_fresh(self) -> None:
            self.session.say("welcome to the entry")

    entry = Entry(
        instructions="Be kind.",
        resume=ROOM,
        recall=open_recall(),
        resume_agents={"stubborn": lambda: Stubborn(open_recall())},
    )
    async with Line(entry, reply).open() as line:
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        stubborn = line.session.current_agent
        assert isinstance(stubborn, Stubborn)
        assert stubborn.call is entry.call
        assert "welcome" not in line.subtitles.text
        assert said(stubborn.asked[0])[2] == "my number is seven"
