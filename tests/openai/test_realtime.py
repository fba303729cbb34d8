"""The real Realtime class against a strict server: recording, seeding, and its own reconnects."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import wave
from collections.abc import Callable, Sequence
from io import BytesIO
from statistics import median
from typing import Any

import anyio
import pytest
from livekit.agents import RunContext, function_tool, llm

from recall_livekit import Action, Briefing, CallState, Recall, RecallAgent, Resolved
from recall_livekit.testing.voices import ToneTTS, tones

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from ..livekit.line import until
from .calls import ODD_TURNS, ROOM, earlier_call, odd_call
from .line import open_line, realtime_model
from .live import Live
from .server import Call, OpenAIServer, Reply, texts

pytestmark = pytest.mark.anyio
HISTORY = [("assistant", "hello, how can I help?"), ("user", "a table for four")]


class Support(RecallAgent):
    def __init__(self, recall: Recall, **options: Any) -> None:
        options = {"instructions": "Be kind."} | options
        super().__init__(resume=ROOM, recall=recall, **options)
        self.charged = 0
        self.entered = asyncio.Event()

    async def on_enter(self) -> None:
        self.entered.set()
        await super().on_enter()

    @function_tool
    async def charge(self, context: RunContext[Any], euros: int) -> str:
        """Charge the caller."""
        self.charged += euros
        return f"{euros} charged"


class Front(Support):
    """Hands over to the next agent when it is asked to."""

    def __init__(
        self, recall: Recall, following: Callable[[], RecallAgent], **options: Any
    ) -> None:
        super().__init__(recall, **options)
        self.following = following

    @function_tool
    async def transfer(self) -> RecallAgent:
        """Hand over."""
        return self.following()


def answer(items: Sequence[dict[str, Any]]) -> Reply:
    role, text = texts(items)[-1]
    if role == "user" and text == "charge me":
        return Call("charge", '{"euros": 20}')
    if role == "user" and text == "somebody else please":
        return Call("transfer")
    return text if role == "tool" else "where were we"


async def recorded(open_recall: OpenRecall) -> list[tuple[str, str]]:
    return [(turn.role, turn.content.strip()) for turn in await open_recall().turns(ROOM)]


async def under_way(open_recall: OpenRecall) -> list[str]:
    """What is being said, as the records have it."""
    return [partial.text.strip() for partial in (await open_recall().read(ROOM)).partials]


async def connected(server: OpenAIServer, after: int = 0) -> Live:
    """The newest connection, if `after` so many there is another, that knows its tools."""
    await until(lambda: len(server.lives) > after and server.live.session.get("tools"))
    return server.live


async def test_a_call_is_recorded(open_recall: OpenRecall, server: OpenAIServer) -> None:
    """Both sides' turns, and before that the caller's words as they are transcribed."""
    agent = Support(open_recall())
    async with open_line(agent, realtime_model(server)) as line:
        await until(lambda: agent.call.state is CallState.HOLDING)
        live = await connected(server)
        item_id = await live.user_says("a table for four", words=True, transcript_after=1.0)
        with anyio.fail_after(5):
            while "a table for four" not in await under_way(open_recall):
                pass
        await until(lambda: len(line.session.history.messages()) == 2)
        assert await agent.call.flush(2)
    turns = await open_recall().turns(ROOM)
    assert {(turn.role, turn.content.strip()) for turn in turns} == {
        ("user", "a table for four"),
        ("assistant", "hello there"),
    }
    assert item_id in [turn.message_id for turn in turns]


async def test_the_whole_of_a_call_is_accepted(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    await earlier_call(open_recall, tools=True)
    async with open_line(Support(open_recall()), realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    [said] = [texts(prompt) for prompt in server.live.prompts]
    assert said[:2] == HISTORY
    assert said[-1] == ("assistant", "it is booked")
    assert ("call", 'charge({"euros": 20})') in said
    assert [role for role, _ in said].count("call") == [role for role, _ in said].count("tool")
    [told] = server.live.instructions
    assert told.startswith("Be kind.\n\nYou are going on with a call")
    assert "charge" in told


async def test_records_that_no_model_wrote_are_accepted_too(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    await odd_call(open_recall)
    async with open_line(Support(open_recall()), realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
    [said] = [texts(prompt) for prompt in server.live.prompts]
    assert [text for role, text in said if role == "user"] == ODD_TURNS


@pytest.mark.parametrize("tools", [False, True])
async def test_a_seed_does_not_delay_the_start(
    open_recall: OpenRecall, server: OpenAIServer, tools: bool
) -> None:
    """A history that the agent has when it starts is awaited; ours is not."""
    server.ack_delay = 0.6
    fresh = [await started(server, Support(open_recall())) for _ in range(5)]
    await earlier_call(open_recall, tools=tools)
    resumed = [await started(server, Support(open_recall())) for _ in range(5)]
    history = llm.ChatContext([llm.ChatMessage(role="user", content=["a table for four"])])
    awaited = await started(server, Support(open_recall(), chat_ctx=history))
    print(
        f"start: fresh {median(fresh):.3f} s, resumed {median(resumed):.3f} s, "
        f"ratio {median(resumed) / median(fresh):.2f}, with a history of its own {awaited:.3f} s"
    )
    assert awaited > server.ack_delay
    assert min(resumed) < server.ack_delay / 2


async def started(server: OpenAIServer, agent: Support) -> float:
    """Start it, and return how long that took (seconds)."""
    await agent.call.ready(5)
    began = time.monotonic()
    async with open_line(agent, realtime_model(server)):
        return time.monotonic() - began


async def test_a_server_that_confirms_nothing_costs_nobody_a_word(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    server.ack_delay = math.inf
    await earlier_call(open_recall)
    agent = Support(open_recall())
    await agent.call.ready(5)
    began = time.monotonic()
    async with open_line(agent, realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
        assert time.monotonic() - began < 4.5  # LiveKit waits 5 s
        assert texts(server.live.prompts[0])[:2] == HISTORY
        ended = time.monotonic()
    assert time.monotonic() - ended < 4.5, "nobody waits for it at the end either"


async def test_its_own_reconnect_keeps_what_was_seeded(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    """The class replays its history on a new connection, but for developer messages."""
    server.reply = answer
    await earlier_call(open_recall, tools=True)
    agent = Support(open_recall())
    async with open_line(agent, realtime_model(server)) as line:
        await until(lambda: "where were we" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        await server.live.hang_up()
        await (await connected(server, after=1)).user_says("charge me")
        await until(lambda: "20 charged" in line.subtitles.text)
        assert await agent.call.flush(2)
    said = texts(server.live.prompts[-1])
    assert said[:2] == HISTORY
    assert said.count(("user", "a table for four")) == 1
    assert server.live.session["instructions"].startswith("Be kind.\n\nYou are going on with")
    assert agent.charged == 20
    turns = await recorded(open_recall)
    assert len(turns) == len(set(turns))
    assert ("user", "charge me") in turns


async def test_records_that_come_late_go_in_front_of_what_was_said_meanwhile(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    """The caller's words, which are not transcribed yet, are in no context of ours: they must not
    be taken for deleted."""
    await earlier_call(open_recall)
    freezer = Freezer(frozen=True)
    agent = Support(open_recall(faults=freezer, seed_wait=0.05, flush_wait=0.5))
    async with open_line(agent, realtime_model(server)) as line:
        live = await connected(server)
        await live.user_says("hello")
        await until(lambda: "hello there" in line.subtitles.text)
        await agent.update_instructions("Be brief.")  # LiveKit notes that, and not what follows it
        spoken = await live.user_says("are you there", transcript_after=1.0)
        await until(lambda: len(live.conversation.items) == 4)
        assert agent.chat_ctx.get_by_id(spoken) is None
        freezer.thaw()
        await until(lambda: len(live.conversation.items) == 7)
        await until(lambda: "are you there" in str(line.session.history.items))
    items = live.conversation.items
    assert texts(items)[:2] == HISTORY
    assert [item["id"] for item in items].index(spoken) == 5
    assert "conversation.item.delete" not in [event["type"] for event in server.live.received]
    assert "You are going on with a call" in server.live.session["instructions"]


@pytest.mark.parametrize("one_model", [True, False])
async def test_agents_4106_realtime_user_turn_missing_at_handoff(
    open_recall: OpenRecall, server: OpenAIServer, one_model: bool
) -> None:
    """The words that made the agent hand over are transcribed when it is gone."""
    server.reply = answer
    recall = open_recall()
    own = {} if one_model else {"llm": realtime_model(server)}
    second: list[Support] = []

    def following() -> Support:
        second.append(Support(recall, id="second", **own))
        return second[0]

    agent = Front(recall, following)
    async with open_line(agent, realtime_model(server)) as line:
        first = await connected(server)
        await first.user_says("somebody else please", words=True, transcript_after=0.3)
        await until(lambda: len(second) == 1 and second[0].entered.is_set())
        live = await connected(server, after=0 if one_model else 1)
        await live.user_says("charge me", words=True)
        await until(lambda: "20 charged" in line.subtitles.text)
        assert await agent.call.flush(2)
    turns = await recorded(open_recall)
    assert ("user", "somebody else please") in turns
    assert ("user", "charge me") in turns
    assert len(turns) == len(set(turns))


async def test_agents_2471_text_only_replies_after_history_load(
    open_recall: OpenRecall, server: OpenAIServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A voice beside the model speaks them; without one, a resumed call is told so at once."""
    server.text_only = True
    await earlier_call(open_recall)
    agent = Support(open_recall())
    with caplog.at_level(logging.WARNING, "recall_livekit"):
        async with open_line(agent, realtime_model(server), voice=ToneTTS(word_ms=60)) as line:
            await until(lambda: line.speaker.seconds > 0)
            await until(lambda: "hello there" in line.subtitles.text)
        assert "AgentSession(llm=..., tts=...)" not in caplog.text
        async with open_line(Support(open_recall()), realtime_model(server)) as line:
            await until(lambda: "AgentSession(llm=..., tts=...)" in caplog.text)
            await until(lambda: len(server.live.prompts) == 1)
        assert caplog.text.count("AgentSession(llm=..., tts=...)") == 1


async def test_a_tool_call_is_recorded_and_goes_on(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    server.reply = answer
    agent = Support(open_recall())
    async with open_line(agent, realtime_model(server)) as line:
        await (await connected(server)).user_says("charge me")
        await until(lambda: "20 charged" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        assert await agent.call.flush(2)
    [charge] = (await open_recall().read(ROOM)).finished
    assert (charge.tool, charge.status, charge.result) == ("charge", "done", "20 charged")
    second = Support(open_recall())
    async with open_line(second, realtime_model(server)) as line:
        await until(lambda: "where were we" in line.subtitles.text)
    said = texts(server.live.prompts[0])
    assert said[:3] == [
        ("user", "charge me"),
        ("call", 'charge({"euros": 20})'),
        ("tool", "20 charged"),
    ]
    assert second.charged == 0


@pytest.mark.parametrize("ack_delay", [0.1, 0.9])
async def test_what_is_said_at_once_comes_after_the_history(
    open_recall: OpenRecall, server: OpenAIServer, ack_delay: float
) -> None:
    """LiveKit puts what was said into a copy of what the server confirmed, by time: before the
    history, whose items are confirmed later, or in place of it, if they are not confirmed yet."""
    server.ack_delay = ack_delay
    await earlier_call(open_recall, tools=True)
    agent = Support(open_recall(), resume_audio=wav("sorry one moment"), resume_words="Sorry.")
    await agent.call.ready(5)
    async with open_line(agent, realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
        items = server.live.conversation.items
        await until(lambda: ("assistant", "Sorry.") in texts(items))
    said = texts(items)
    assert said[:2] == HISTORY
    assert said.index(("assistant", "Sorry.")) > said.index(("assistant", "it is booked"))


def wav(text: str) -> bytes:
    body = BytesIO()
    with wave.open(body, "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(b"".join(bytes(frame.data) for frame in tones(text)))
    return body.getvalue()


async def test_what_a_resolver_found_out_takes_the_place_of_what_was_not_known(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    class Careful(Support):
        async def on_resume(self, briefing: Briefing | None) -> None:
            await self.reconcile(found)
            await super().on_resume(briefing)

    async def found(action: Action) -> Resolved:
        return Resolved("done", "20 charged, receipt 7")

    await earlier_call(open_recall, tools=True)
    async with open_line(Careful(open_recall()), realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await until(lambda: len(texts(server.live.conversation.items)) == 8)
    said = texts(server.live.prompts[-1])
    assert said[said.index(("call", 'charge({"euros": 20})')) + 1] == (
        "tool",
        "20 charged, receipt 7",
    )
    assert "may have happened" not in str(said)


async def test_text_in_and_a_voice_beside_it(open_recall: OpenRecall, server: OpenAIServer) -> None:
    """A realtime model that hears only, and answers in text to a TTS."""
    server.text_only = True
    await earlier_call(open_recall, tools=True)
    model = realtime_model(server, modalities=["text"])
    async with open_line(Support(open_recall()), model, voice=ToneTTS(word_ms=60)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
        assert line.speaker.seconds > 0
    assert texts(server.live.prompts[0])[:2] == HISTORY


async def test_the_agent_that_was_active_comes_back_and_knows(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "a table for four", message_id="item_order")
        call.record_handoff("second", previous="front")
        call.record_turn("assistant", "I am the second", message_id="item_second", agent="second")
    recall = open_recall()
    second: list[Support] = []

    def bring() -> Support:
        second.append(Support(recall, id="second", instructions="Be stern."))
        return second[0]

    front = Front(recall, bring, id="front", resume_agents={"second": bring})
    async with open_line(front, realtime_model(server)) as line:
        await until(lambda: "hello there" in line.subtitles.text)
        assert line.session.current_agent is second[0]
    assert server.live.instructions[-1].startswith("Be stern.\n\n")
    assert texts(server.live.prompts[-1])[:2] == [
        ("user", "a table for four"),
        ("assistant", "I am the second"),
    ]
    tools = [tool["name"] for tool in server.live.session["tools"]]
    assert tools == ["charge"]


async def test_a_connection_that_breaks_while_the_history_is_sent_costs_none_of_it(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    server.ack_delay = 1.0
    await earlier_call(open_recall, tools=True)
    agent = Support(open_recall())
    async with open_line(agent, realtime_model(server)) as line:
        await until(lambda: server.lives and len(server.live.conversation.items) >= 7)
        server.ack_delay = 0.0
        await server.live.hang_up()
        live = await connected(server, after=1)
        await until(lambda: len(live.conversation.items) >= 7)
        await live.user_says("are you there")
        await until(lambda: "hello there" in line.subtitles.text)
    said = texts(live.prompts[-1])
    assert said[:2] == HISTORY
    assert said[-1] == ("user", "are you there")
    assert said.count(("user", "a table for four")) == 1
    assert [role for role, _ in said].count("call") == [role for role, _ in said].count("tool") == 2
    assert "You are going on with a call" in live.instructions[-1]


async def test_a_standby_is_brought_up_to_what_was_said_meanwhile(
    open_recall: OpenRecall, server: OpenAIServer
) -> None:
    async with open_recall().resume(ROOM) as holder:
        holder.record_turn("assistant", "hello, how can I help?", message_id="item_hello")
        assert await holder.flush(2)
        standby = Support(open_recall())
        async with open_line(standby, realtime_model(server)) as line:
            await until(lambda: standby.call.state is CallState.STANDBY)
            live = await connected(server)
            await until(lambda: texts(live.conversation.items) == HISTORY[:1])
            holder.record_turn("user", "a table for four", message_id="item_order")
            assert await holder.flush(2)
            assert line.speaker.seconds == 0
            await holder.aclose("handover")
            await until(lambda: "hello there" in line.subtitles.text)
    assert texts(live.prompts[0]) == HISTORY
    assert len(live.prompts) == 1
