"""Turns that are no plain ones: cut, never heard, never committed. Recorded as what they were."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from livekit.agents import (
    AgentSession,
    ModelSettings,
    StopResponse,
    UserInputTranscribedEvent,
    llm,
)

from recall_livekit import Recall
from recall_livekit.livekit.speech import caller_words, observer
from recall_livekit.livekit.speech.caller_words import CallerWords
from recall_livekit.livekit.speech.spoken import SpokenText
from recall_livekit.models import Turn
from recall_livekit.testing.voices import ScriptedLLM

from ..conftest import OpenRecall
from .line import Line, echo, greeted, until
from .test_agent import ROOM, Support, talk

pytestmark = pytest.mark.anyio


async def recorded(recall: Recall) -> list[tuple[str, str, bool]]:
    """Role, words, and whether they are part of the conversation."""
    turns: Sequence[Turn] = await recall.turns(ROOM)
    return [(turn.role, turn.content.strip(), turn.committed) for turn in turns]


def heard(agent: Support) -> int:
    """How many pieces of speech wait to become a turn."""
    assert agent._live is not None
    return len(agent._live._observer.caller._said)


class Choosy(Support):
    """Answers only who says please; fails on who says crash."""

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        text = new_message.text_content or ""
        if "crash" in text:
            raise RuntimeError("a hook of the application")
        if "please" not in text:
            raise StopResponse


@pytest.mark.parametrize("said", ["just thinking aloud", "crash now"])
async def test_a_turn_that_a_hook_stopped_is_recorded_before_the_next(
    open_recall: OpenRecall, said: str
) -> None:
    agent = Choosy(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say(said)
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.3)
        await talk(line, "a table please")
        assert await agent.call.flush(2)
    assert await recorded(open_recall()) == [
        ("assistant", "hello there", True),
        ("user", said, False),
        ("user", "a table please", True),
        ("assistant", "you said a table please", True),
    ]


async def test_the_same_words_stopped_and_then_answered_are_two_turns(
    open_recall: OpenRecall,
) -> None:
    class Second(Support):
        turns = 0

        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            self.turns += 1
            if self.turns == 1:
                raise StopResponse

    agent = Second(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("yes")
        await until(lambda: agent.turns == 1)
        await talk(line, "yes")
        assert await agent.call.flush(2)
    turns = [turn for turn in await recorded(open_recall()) if turn[0] == "user"]
    assert turns == [("user", "yes", False), ("user", "yes", True)]


async def test_a_stopped_turn_is_recorded_after_a_while_too(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_words, "UNCOMMITTED_AFTER", 0.3)
    agent = Choosy(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("just thinking aloud")
        await until(lambda: heard(agent) == 1)
        await until(lambda: heard(agent) == 0)
        assert await agent.call.flush(2)
        assert (await recorded(open_recall()))[-1] == ("user", "just thinking aloud", False)
        briefing = await open_recall().read(ROOM)
    assert "[user #2 (not answered)] just thinking aloud" in briefing.text
    assert not [partial for partial in briefing.partials if partial.role == "user"]


async def test_a_turn_that_is_stopped_when_the_session_closes_is_recorded(
    open_recall: OpenRecall,
) -> None:
    agent = Choosy(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("just thinking aloud")
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.3)
    assert (await recorded(open_recall()))[-1] == ("user", "just thinking aloud", False)


async def test_a_turn_that_the_session_closes_upon_is_recorded_once(
    open_recall: OpenRecall,
) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("one last thing")
        await until(lambda: heard(agent) == 1)
    users = [turn[:2] for turn in await recorded(open_recall()) if turn[0] == "user"]
    assert users == [("user", "one last thing")]


async def test_an_agent_that_overrides_every_hook_without_super_has_its_words_known(
    open_recall: OpenRecall,
) -> None:
    class Stubborn(Support):
        stopped = False

        async def on_enter(self) -> None:
            self.session.say(" ".join(f"word{n}" for n in range(60)))

        async def transcription_node(self, text: Any, model_settings: ModelSettings) -> Any:
            async for piece in text:
                yield piece.upper()  # and so without the voice's times

        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            self.stopped = True
            raise StopResponse

    agent = Stubborn(open_recall(partial_interval=0.02))
    async with Line(agent).open() as line:
        await until(lambda: "WORD9" in line.subtitles.text)
        [partial] = (await open_recall().read(ROOM)).partials
        assert partial.text.startswith("WORD0 WORD1")
        assert line.speaker.first_at is not None
        heard_for = time.monotonic() - line.speaker.first_at
        assert len(partial.text.split()) * 0.06 <= heard_for
        line.stt.say("stop it")
        await until(lambda: line.session.agent_state == "listening")
        await until(lambda: agent.stopped)
    assert [(role, committed) for role, _, committed in await recorded(open_recall())] == [
        ("assistant", True),
        ("user", False),
    ]


async def test_a_fault_in_following_the_words_does_not_silence_the_agent(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    for name in ("_generate", "_show", "_frame"):
        monkeypatch.setattr(SpokenText, name, fail)
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        await talk(line, "a table please")
        assert await agent.call.flush(2)
    assert [turn[1:] for turn in await recorded(open_recall())] == [
        ("hello there", True),
        ("a table please", True),
        ("you said a table please", True),
    ]
    assert caplog.text.count("cannot be followed as it is heard") == 1


async def test_a_session_that_shows_no_words_has_its_turns_recorded(
    open_recall: OpenRecall,
) -> None:
    agent = Support(open_recall())
    line = Line(agent)
    line.session.output.transcription = None
    async with line.open():
        await until(lambda: line.heard)
        await until(lambda: line.session.agent_state == "listening")
        await talk(line, "a table please")
        assert await agent.call.flush(2)
    assert [turn[1:] for turn in await recorded(open_recall())] == [
        ("hello there", True),
        ("a table please", True),
        ("you said a table please", True),
    ]


async def test_what_was_stopped_is_no_message_of_the_seed(open_recall: OpenRecall) -> None:
    async with Line(agent := Choosy(open_recall())).open() as line:
        await greeted(line)
        line.stt.say("just thinking aloud")
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.3)
        await talk(line, "a table please")
    second = Line(Support(open_recall(seed_wait=5.0)))
    async with second.open():
        await until(lambda: second.prompts, 10)
    assert "a table please" in second.prompts[0]
    assert "just thinking aloud" not in second.prompts[0]


async def test_agents_3119_a_turn_is_kept_while_its_hook_is_slow(open_recall: OpenRecall) -> None:
    """The caller speaks again while the hook has the turn before: LiveKit makes two messages."""

    class Slow(Support):
        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            await asyncio.sleep(0.8)

    agent = Slow(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("my number is seven")
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.2)
        line.stt.say("no it is eight")
        await until(lambda: "eight" in line.subtitles.text, 10)
        assert await agent.call.flush(2)
    users = [turn for turn in await recorded(open_recall()) if turn[0] == "user"]
    assert users == [("user", "my number is seven", True), ("user", "no it is eight", True)]


async def test_a_worker_that_dies_in_a_slow_hook_leaves_what_the_caller_said(
    open_recall: OpenRecall,
) -> None:
    class Stuck(Support):
        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            await asyncio.sleep(1.5)

    agent = Stuck(open_recall(partial_interval=0.02))
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("my number is seven")
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.3)
        briefing = await open_recall().read(ROOM)
    assert "The caller was saying: my number is seven" in briefing.text


async def test_agents_2855_what_is_said_while_the_agent_cannot_be_interrupted_is_recorded(
    open_recall: OpenRecall,
) -> None:
    notice = " ".join(f"word{n}" for n in range(20))
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.session.say(notice, allow_interruptions=False)
        await until(lambda: "word2" in line.subtitles.text)
        line.stt.say("stop it")
        await until(lambda: "word19" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        await talk(line, "are you done")
        assert await agent.call.flush(2)
    assert await recorded(open_recall()) == [
        ("assistant", "hello there", True),
        ("assistant", notice, True),
        ("user", "stop it", False),
        ("user", "are you done", True),
        ("assistant", "you said are you done", True),
    ]


async def test_a_hook_that_changes_the_words_has_the_turn_all_the_same(
    open_recall: OpenRecall,
) -> None:
    class Masking(Support):
        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            new_message.content = ["[a number]"]

    agent = Masking(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        await talk(line, "four two three")
        assert heard(agent) == 0
        assert await agent.call.flush(2)
    assert [turn for turn in await recorded(open_recall()) if turn[0] == "user"] == [
        ("user", "[a number]", True)
    ]


async def test_typed_words_take_nothing_from_what_was_said(open_recall: OpenRecall) -> None:
    agent = Choosy(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.stt.say("just thinking aloud")
        await until(lambda: heard(agent) == 1)
        await anyio.sleep(0.3)
        line.session.generate_reply(user_input="typed by hand")
        await until(lambda: "typed by hand" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
    assert await recorded(open_recall()) == [
        ("assistant", "hello there", True),
        ("user", "typed by hand", True),
        ("assistant", "you said typed by hand", True),
        ("user", "just thinking aloud", False),
    ]


# --- the agent's --------------------------------------------------------------------------------


async def test_agents_6424_a_reply_of_which_nothing_was_heard_is_recorded_as_that(
    open_recall: OpenRecall,
) -> None:
    """LiveKit keeps the message of a voice that failed to make a sound."""

    class Mute(Support):
        mute = False

        async def tts_node(self, text: Any, model_settings: ModelSettings) -> Any:
            async for frame in Support.default.tts_node(self, text, model_settings):
                if not self.mute:
                    yield frame

    agent = Mute(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        agent.mute = True
        before = line.speaker.seconds
        await talk(line, "are you there")
        assert line.speaker.seconds == before
        assert await agent.call.flush(2)
        briefing = await open_recall().read(ROOM)
    assert (await recorded(open_recall()))[-1] == ("assistant", "you said are you there", False)
    assert "(never heard)] you said are you there" in briefing.text


async def test_an_interrupted_turn_ends_where_it_was_cut(open_recall: OpenRecall) -> None:
    story = " ".join(f"word{n}" for n in range(60))
    agent = Support(open_recall())
    async with Line(agent, lambda _: story).open() as line:
        await until(lambda: "word5" in line.subtitles.text)
        await line.session.interrupt()
        assert await agent.call.flush(2)
    [turn] = await open_recall().turns(ROOM)
    assert turn.interrupted
    assert turn.committed
    assert turn.content.startswith("word0 word1")
    assert "word30" not in turn.content


async def test_agents_5038_interrupted_speech_that_livekit_loses_is_recorded(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "NO_ITEM_SECONDS", 0.2)
    story = " ".join(f"word{n}" for n in range(60))
    agent = Support(open_recall())
    async with Line(agent, lambda _: story).open() as line:
        monkeypatch.setattr(line.session, "_conversation_item_added", lambda message: None)
        await until(lambda: "word7" in line.subtitles.text)
        await line.session.interrupt()
        await anyio.sleep(0.5)
        assert await agent.call.flush(2)
        [turn] = await open_recall().turns(ROOM)
        partials = (await open_recall().read(ROOM)).partials
    assert turn.interrupted
    assert turn.content.startswith("word0 word1 word2")
    assert "word30" not in turn.content
    assert partials == ()


async def test_words_that_the_application_keeps_out_of_the_conversation_are_in_no_other_turn(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "NO_ITEM_SECONDS", 0.1)
    agent = Support(open_recall(partial_interval=0.02))
    async with Line(agent).open() as line:
        await greeted(line)
        await line.session.say("one moment", add_to_chat_ctx=False)
        await anyio.sleep(0.4)
        assert (await open_recall().read(ROOM)).partials == ()
        line.session.say("one more moment", add_to_chat_ctx=False)
        line.session.say("there you are")
        await until(lambda: "there you are" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        await talk(line, "well")
        assert await agent.call.flush(2)
    assert [turn[1:] for turn in await recorded(open_recall())] == [
        ("hello there", True),
        ("there you are", True),
        ("well", True),
        ("you said well", True),
    ]


# --- what belongs to which message --------------------------------------------------------------


def words_of(*said: str) -> tuple[CallerWords, list[str]]:
    never: list[str] = []
    words = CallerWords(lambda text, at: never.append(text), lambda: False)
    for text in said:
        words.hear(UserInputTranscribedEvent(transcript=text, is_final=True))
    return words, never


def message(text: str, *, item_id: str = "item") -> llm.ChatMessage:
    return llm.ChatMessage(id=item_id, role="user", content=[text], transcript_confidence=1.0)


@pytest.mark.parametrize(
    ("said", "text", "never", "left"),
    [
        (["one", "two"], "one two", [], []),
        (["one", "two"], "One, two.", [], []),
        (["one", "two"], "two", ["one"], []),
        (["one", "two", "three"], "two three", ["one"], []),
        (["one", "two"], "one", [], ["two"]),
        (["yes please", "yes"], "yes please", [], ["yes"]),
        (["no", "i know that"], "i know that", ["no"], []),
        (["one", "two"], "[caller] two!", ["one"], []),
        (["one", "two"], "something else", [], []),
        ([], "typed", [], []),
    ],
)
async def test_what_a_message_has(
    said: list[str], text: str, never: list[str], left: list[str]
) -> None:
    words, told = words_of(*said)
    words.committed(message(text))
    assert told == never
    assert [one.text for one in words._said] == left
    words.close()
    assert told == [*never, *([" ".join(left)] if left else [])]


async def test_a_realtime_models_items_are_told_apart_by_their_ids() -> None:
    words, never = words_of()
    for n in (1, 2):
        said = UserInputTranscribedEvent(transcript="yes", is_final=True, item_id=f"item {n}")
        words.hear(said)
    words.committed(message("yes", item_id="item 1"))
    assert [one.item_id for one in words._said] == ["item 2"]
    words.committed(message("yes", item_id="item 2"))
    words.close()
    assert never == []


async def test_words_wait_for_as_long_as_the_application_decides_when_a_turn_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caller_words, "UNCOMMITTED_AFTER", 0.02)
    never: list[str] = []
    is_open = True
    words = CallerWords(lambda text, at: never.append(text), lambda: is_open)
    words.hear(UserInputTranscribedEvent(transcript="push to talk", is_final=True))
    await anyio.sleep(0.1)
    assert never == []
    is_open = False
    await until(lambda: never == ["push to talk"])


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_words, "MOST", 3)
    words, never = words_of(*"abcde")
    assert never == ["a", "b"]
    words.close()
    assert never == ["a", "b", "c d e"]


async def test_a_session_of_text_alone_has_nothing_that_could_be_heard(
    open_recall: OpenRecall,
) -> None:
    """As LiveKit's own tests run one: neither sound nor shown words."""
    session: AgentSession[Any] = AgentSession(llm=ScriptedLLM(echo))
    agent = Support(open_recall())
    await session.start(agent)
    await session.run(user_input="my number is seven")
    await session.aclose()
    assert agent._live is not None
    await agent._live.closed()
    said = await recorded(open_recall())
    assert ("assistant", "you said my number is seven", True) in said
    assert all(committed for *_, committed in said)
