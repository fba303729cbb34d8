"""`RecallAgent` in a real `AgentSession`: a whole voice pipeline with scripted models."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterable
from typing import Any

import anyio
import pytest
from livekit.agents import Agent, ModelSettings, function_tool, llm

from recall_livekit import Briefing, CallState, Recall, RecallAgent
from recall_livekit.testing.voices import said, tool_call

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, Speaker, echo, until

pytestmark = pytest.mark.anyio
ROOM = "support room"


class Support(RecallAgent):
    """Notes what it was asked to do."""

    def __init__(self, recall: Recall, **options: Any) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall, **options)
        self.told: list[str] = []
        self.lost: list[str] = []

    async def on_fresh(self) -> None:
        self.told.append("fresh")
        self.session.generate_reply(instructions="Greet the caller.")

    async def on_resume(self, briefing: Briefing | None) -> None:
        self.told.append("resume" if briefing else "resume unread")
        await super().on_resume(briefing)

    async def on_lease_lost(self, reason: str) -> None:
        self.lost.append(reason)


async def earlier_call(open_recall: OpenRecall, text: str = "a table for four") -> None:
    """Another worker had the call, in which the caller said this."""
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", text)


async def turns(recall: Recall) -> list[tuple[str, str]]:
    return [(turn.role, turn.content.strip()) for turn in await recall.turns(ROOM)]


async def talk(line: Line, text: str) -> None:
    """The caller says something and hears the whole answer."""
    await until(lambda: line.session.agent_state == "listening")
    before = len(line.session.history.messages())
    line.stt.say(text)
    await until(lambda: len(line.session.history.messages()) >= before + 2)


@pytest.mark.over_http
async def test_a_fresh_call_is_greeted_and_recorded(open_recall: OpenRecall) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "my number is seven")
        assert await agent.call.flush(2)
    assert agent.told == ["fresh"]
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "my number is seven"),
        ("assistant", "you said my number is seven"),
    ]
    recorded = (await open_recall().turns(ROOM))[-1]
    assert recorded.agent == "support"
    assert recorded.message_id is not None


@pytest.mark.over_http
async def test_the_next_worker_knows_what_was_said_and_does_not_greet(
    open_recall: OpenRecall,
) -> None:
    async with Line(first := Support(open_recall())).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "my number is seven")
        await first.call.flush(2)
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "my number is seven" in line.subtitles.text)
        [prompt] = line.prompts
        assert prompt[0] == "Be kind."
        assert prompt[1].startswith("You are going on with a call")
        assert [text.strip() for text in prompt[2:5]] == [
            "hello there",
            "my number is seven",
            "you said my number is seven",
        ]
        assert "Do not greet again" in prompt[-1]
        history = [m.text_content for m in line.session.history.messages()]
        assert "my number is seven" in history
    assert agent.told == ["resume"]


@pytest.mark.over_http
async def test_words_cut_off_are_known_as_spoken_not_as_generated(
    open_recall: OpenRecall,
) -> None:
    story = " ".join(f"word{n}" for n in range(40))
    agent = Support(open_recall(partial_interval=0.05))
    async with Line(agent, lambda _: story).open() as line:
        await until(lambda: "word5" in line.subtitles.text)
        reader = open_recall()
        await anyio.sleep(0.2)
        [cut] = (await reader.read(ROOM)).partials
        assert line.speaker.first_at is not None
        heard_for = time.monotonic() - line.speaker.first_at
        assert cut.role == "assistant"
        assert cut.text.startswith("word0 word1 word2")
        assert len(cut.text.split()) * 0.06 <= heard_for
        assert "word39" not in cut.text


async def heard(reader: Recall) -> list[str]:
    """What the caller was saying: the greeting may be on its way to the records meanwhile."""
    return [cut.text for cut in (await reader.read(ROOM)).partials if cut.role == "user"]


@pytest.mark.over_http
async def test_what_the_caller_was_saying_is_known(open_recall: OpenRecall) -> None:
    agent = Support(open_recall(partial_interval=0.02))
    line = Line(agent)
    line.stt.word_delay = 0.1
    async with line.open():
        await until(lambda: "hello there" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        line.stt.say("one two three four five six seven eight")
        reader = open_recall()
        with anyio.fail_after(3):
            while not (found := await heard(reader)):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert found[-1].startswith("one")


async def test_an_agent_that_overrides_every_hook_without_super_is_recorded(
    open_recall: OpenRecall,
) -> None:
    class Stubborn(Support):
        async def on_enter(self) -> None:
            self.session.say("custom greeting")

        async def llm_node(
            self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
        ) -> AsyncIterable[llm.ChatChunk | str]:
            yield "custom answer"

        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            return None

    agent = Stubborn(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "custom greeting" in line.subtitles.text)
        await talk(line, "hello")
        await agent.call.flush(2)
    assert [content for _, content in await turns(open_recall())] == [
        "custom greeting",
        "hello",
        "custom answer",
    ]


@pytest.mark.over_http
@pytest.mark.parametrize("resumed", [False, True])
async def test_of_two_agents_started_at_once_one_speaks(
    open_recall: OpenRecall, resumed: bool
) -> None:
    if resumed:
        await earlier_call(open_recall, "said before")
    # An answer in time is what it is about: on a busy machine the usual quarter of a second is not.
    agents = [Support(open_recall(seed_wait=5.0)), Support(open_recall(seed_wait=5.0))]
    lines = [Line(agent) for agent in agents]
    async with lines[0].open(), lines[1].open():
        await until(lambda: any(line.heard for line in lines))
        await anyio.sleep(0.8)
        assert sorted(line.heard for line in lines) == [False, True]
        holder = next(a for a in agents if a.call.state is CallState.HOLDING)
        standby = next(a for a in agents if a is not holder)
        assert standby.call.state is CallState.STANDBY
    assert [role for role, _ in await turns(open_recall())][-1:] == ["assistant"]
    assert len(await turns(open_recall())) == 1 + resumed


@pytest.mark.over_http
@pytest.mark.parametrize("resumed", [False, True])
async def test_a_later_agent_is_silent_deaf_and_takes_over_when_the_first_ends(
    open_recall: OpenRecall, resumed: bool
) -> None:
    if resumed:
        await earlier_call(open_recall, "said before")
    first = Support(open_recall())
    async with Line(first).open() as speaking:
        await until(lambda: speaking.heard)
        second = Support(open_recall())
        line = Line(second)
        async with line.open():
            await until(lambda: second.call.state is CallState.STANDBY)
            second.session.generate_reply(instructions="Talk!")
            await anyio.sleep(0.4)
            assert not line.heard
            assert line.subtitles.text == ""
            await talk(speaking, "still with the first")
            await first.call.flush(2)
            await speaking.session.aclose()
            await until(lambda: line.heard)
            await until(lambda: "still with the first" in line.subtitles.text)
            assert second.told == ["resume"]


async def test_an_output_that_is_replaced_later_is_silenced_too(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM):
        standby = Support(open_recall())
        line = Line(standby)
        async with line.open():
            await until(lambda: standby.call.state is CallState.STANDBY)
            line.session.output.audio = other = Speaker()
            standby.session.say("what nobody should hear")
            await anyio.sleep(0.4)
            assert other.seconds == line.speaker.seconds == 0


@pytest.mark.over_http
async def test_a_holder_whose_call_is_stolen_falls_silent_in_mid_sentence(
    open_recall: OpenRecall,
) -> None:
    story = " ".join(f"word{n}" for n in range(100))
    agent = Support(open_recall())
    async with Line(agent, lambda _: story).open() as line:
        await until(lambda: "word5" in line.subtitles.text)
        async with open_recall().resume(ROOM, if_held="steal"):
            await until(lambda: not agent.call.may_speak, 1)
            await anyio.sleep(0.1)
            heard = line.speaker.seconds
            await anyio.sleep(0.3)
            assert line.speaker.seconds == heard
            assert agent.lost == ["taken over"]
            assert "word99" not in line.subtitles.text


@pytest.mark.over_http
async def test_a_fenced_workers_tools_refuse(open_recall: OpenRecall) -> None:
    class Teller(Support):
        charged = 0

        @function_tool
        async def charge(self) -> str:
            """Charge the card."""
            type(self).charged += 1
            return "charged"

    def reply(chat_ctx: llm.ChatContext) -> Any:
        last = chat_ctx.items[-1]
        if isinstance(last, llm.FunctionCallOutput):
            return f"it says {last.output}"
        return [tool_call("charge")] if said(chat_ctx, "user") else "hello there"

    agent = Teller(open_recall())
    async with Line(agent, reply).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        line.stt.say("charge me")
        await until(lambda: "it says charged" in line.subtitles.text)
        async with open_recall().resume(ROOM, if_held="steal"):
            await until(lambda: not agent.call.may_act, 1)
            with pytest.raises(Exception, match="took this call over"):
                await _execute(agent, "charge")
        assert Teller.charged == 1


async def _execute(agent: Agent, name: str) -> None:
    """Run a tool as the session would, in spite of its silence."""
    executor: Any = agent._get_activity_or_raise()._tool_executor
    tool = next(t for t in agent.tools if isinstance(t, llm.FunctionTool) and t.info.name == name)
    await executor.execute(tool=tool, run_ctx=None, raw_arguments={})


@pytest.mark.over_http
async def test_a_frozen_store_costs_the_first_reply_its_wait_once(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall, "my number is seven")
    freezer = Freezer(timeout=0.5, frozen=True)
    started = time.monotonic()
    agent = Support(open_recall(faults=freezer, seed_wait=0.25, flush_wait=0.5))
    async with Line(agent).open() as line:
        await until(lambda: line.heard)
        assert line.speaker.first_at is not None
        assert 0.2 < line.speaker.first_at - started < 0.8
        assert agent.told == ["fresh"]
        await until(lambda: line.session.agent_state == "listening")
        asked = time.monotonic()
        await talk(line, "hello")
        assert time.monotonic() - asked < 1.2
        freezer.thaw()
        await until(lambda: agent.call.state is CallState.HOLDING)
        await talk(line, "again")
        assert "my number is seven" in line.prompts[-1], "the records landed late"
        assert await agent.call.flush(2)
    assert ("user", "hello") in await turns(open_recall())


@dataclasses.dataclass
class Order:
    seats: int = 0
    name: str = ""


@pytest.mark.over_http
async def test_userdata_comes_back_typed(open_recall: OpenRecall) -> None:
    first = Support(open_recall(), userdata_type=Order)
    line = Line(first)
    line.session.userdata = Order()
    async with line.open():
        await until(lambda: line.heard)
        line.session.userdata.seats = 4
        line.session.userdata.name = "Anna"
        await talk(line, "four seats")
        await first.call.flush(2)
    second = Line(Support(open_recall(), userdata_type=Order))
    async with second.open():
        await until(lambda: second.heard)
        assert second.session.userdata == Order(4, "Anna")


async def test_userdata_that_the_application_set_is_never_overwritten(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(ROOM) as earlier:
        earlier.record_turn("user", "hi")
        earlier.record_userdata({"seats": 4})
    agent = Support(open_recall(), userdata_type=Order)
    line = Line(agent)
    line.session.userdata = Order(name="mine")
    async with line.open():
        await until(lambda: line.heard)
        assert line.session.userdata == Order(name="mine")
        assert agent.call.briefing.userdata == {"seats": 4}


async def test_userdata_that_no_longer_fits_comes_back_raw_with_a_warning(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_recall().resume(ROOM) as earlier:
        earlier.record_turn("user", "hi")
        earlier.record_userdata({"seats": "many"})
    line = Line(Support(open_recall(), userdata_type=Order))
    async with line.open():
        await until(lambda: line.heard)
        assert line.session.userdata == {"seats": "many"}
    assert "does not fit its type" in caplog.text


async def test_userdata_that_cannot_be_recorded_does_not_end_the_call(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    line = Line(Support(open_recall()))
    line.session.userdata = {"socket": object()}
    async with line.open():
        await until(lambda: line.heard)
        await talk(line, "hello")
        await talk(line, "again")
    assert caplog.text.count("userdata cannot be recorded") == 1


async def test_recording_goes_on_after_a_handoff(open_recall: OpenRecall) -> None:
    class Billing(Agent):
        def __init__(self) -> None:
            super().__init__(instructions="Billing.")

        async def on_enter(self) -> None:
            self.session.say("billing here")

    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        line.session.update_agent(Billing())
        await until(lambda: "billing here" in line.subtitles.text)
        await talk(line, "my bill")
        assert await agent.call.flush(2)
        assert agent.call.state is CallState.HOLDING
    recorded = await open_recall().turns(ROOM)
    assert [turn.agent for turn in recorded if turn.role == "assistant"] == [
        "support",
        "billing",
        "billing",
    ]


async def test_a_second_recall_agent_joins_the_calls_live_session(
    open_recall: OpenRecall,
) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        other = Support(open_recall())
        line.session.update_agent(other)
        await until(lambda: line.session.current_agent is other)
        await talk(line, "hello")
        assert other.call is agent.call
        assert agent.call.state is CallState.HOLDING
        assert await agent.call.flush(2)
    assert ("user", "hello") in await turns(open_recall())


async def test_the_model_may_keep_its_working_state(open_recall: OpenRecall) -> None:
    def reply(chat_ctx: llm.ChatContext) -> Any:
        if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
            return "noted"
        if said(chat_ctx, "user"):
            return [tool_call("update_working_state", '{"goal": "book a table"}')]
        return "hello there"

    agent = Support(open_recall(), model_tools=("update_working_state",))
    async with Line(agent, reply).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        line.stt.say("a table please")
        await until(lambda: "noted" in line.subtitles.text)
        await agent.call.flush(2)
    state = (await open_recall().read(ROOM)).working_state
    assert state is not None
    assert state.goal == "book a table"


async def test_without_livekits_private_name_it_attaches_at_on_enter_with_one_warning(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def keep(agent: RecallAgent, activity: Any) -> None:
        agent.__dict__["_live_activity"] = activity

    getter = RecallAgent.__dict__["_activity"].fget
    monkeypatch.setattr(RecallAgent, "_activity", property(getter, keep))
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "hello")
        assert await agent.call.flush(2)
    assert ("user", "hello") in await turns(open_recall())
    assert caplog.text.count("does not tell when an agent starts") == 1


async def test_a_store_that_cannot_be_opened_does_not_end_the_call(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a directory")
    agent = Support(Recall.open(f"sqlite:///{blocked}"))
    async with Line(agent).open() as line:
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "hello")
    assert "the call goes on" in caplog.text


def test_the_scripted_reply_is_what_the_tests_think() -> None:
    assert echo(llm.ChatContext.empty()) == "hello there"
