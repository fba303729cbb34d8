"""A call that is handed over between two sentences: nothing lost, nothing said twice."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from livekit.agents import function_tool, llm

from recall_livekit import Briefing, CallState, Partial, Recall, StoreUnavailable, Turn
from recall_livekit.livekit.speech.sentences import SentenceTimes
from recall_livekit.livekit.succession import handover
from recall_livekit.livekit.succession.handover import what_is_due
from recall_livekit.testing.voices import said, tool_call

from ..conftest import OpenRecall, transport_of
from .line import Line, until
from .test_agent import ROOM, Support

pytestmark = pytest.mark.anyio

SENTENCES = [f"word{n}0 word{n}1 word{n}2 word{n}3 word{n}4." for n in range(1, 7)]
STORY = " ".join(SENTENCES)


def story(chat_ctx: llm.ChatContext) -> str:
    """The whole story; of a handover's prompt, the rest of it."""
    prompt = said(chat_ctx)[-1]
    if found := re.search(r'"(.*)" was the last', prompt):
        assert found[1].split()[-1] in STORY, found[1]
        return STORY.partition(found[1].split()[-1])[2].strip()
    return STORY


class Deployed(Support):
    """Notes that it was a handover."""

    async def on_handover(self, briefing: Briefing) -> None:
        self.told.append("handover")
        await super().on_handover(briefing)


async def successor(recall: Recall) -> Deployed:
    agent = Deployed(recall)
    await until(lambda: agent.call.state is CallState.STANDBY)
    assert agent._live is not None
    assert await agent._live._switchboard.hand_over() == "successor"
    return agent


async def hand_over(agent: Support) -> str:
    assert agent._live is not None
    return await agent._live._switchboard.hand_over()


async def recorded(recall: Recall) -> Sequence[Turn]:
    return await recall.turns(ROOM)


# --- where it stops -----------------------------------------------------------------------------


@pytest.mark.parametrize("timed", [True, False], ids=["words timed", "words not timed"])
async def test_a_reply_is_cut_after_a_sentence_and_the_successor_says_the_rest(
    open_recall: OpenRecall, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not timed:
        monkeypatch.setattr(SentenceTimes, "next_end", lambda self: None)
    first = Deployed(open_recall())
    async with Line(first, story).open() as line:
        await until(lambda: "word12" in line.subtitles.text)
        second = await successor(open_recall())
        other = Line(second, story)
        async with other.open():
            assert await hand_over(first) == "handed over"
            heard = line.speaker.seconds
            await until(lambda: "word64" in other.subtitles.text, 10)
            await until(lambda: other.session.agent_state == "listening")
            assert line.speaker.seconds == heard, "silent from then on"
            assert (first.lost, second.told) == (["handed over"], ["handover"])
            await second.call.flush(2)
    begun, rest = await recorded(open_recall())
    assert begun.content.endswith("."), begun.content
    assert begun.interrupted
    assert f"{begun.content} {rest.content.strip()}" == STORY
    assert other.subtitles.text.split() == rest.content.split()


async def test_what_was_heard_is_what_is_recorded(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word to its end, and nothing to speak of after it, however seldom one looks."""
    monkeypatch.setattr(handover, "LOOK_SECONDS", 0.25)
    first = Deployed(open_recall())
    line = Line(first, story)
    line.session.tts.word_ms = 300  # type: ignore[union-attr]
    async with line.open():
        await until(lambda: "word12" in line.subtitles.text)
        second = await successor(open_recall())
        assert await hand_over(first) == "handed over"
        [turn] = await recorded(open_recall())
        words = len(turn.content.split())
        off = line.speaker.played - words * 0.3
        print(f"cut {1000 * off:+.0f} ms off the end of the sentence")
        assert -0.02 < off < 0.15, "on a busy machine it is late, never early"
        await second.call.aclose()


async def test_a_turn_that_is_cut_is_recorded_to_its_cut(open_recall: OpenRecall) -> None:
    """LiveKit counts a word when it has passed: it may miss the last one, or add the next."""
    agent = Support(open_recall())
    async with Line(agent, lambda _: STORY).open() as line:
        await until(lambda: "word22" in line.subtitles.text)
        assert agent._live is not None
        agent._live._observer.cut_here(SENTENCES[0])
        await line.session.interrupt(force=True)
        assert await agent.call.flush(2)
        agent.session.say("and on")
        await until(lambda: len(line.session.history.messages()) == 2)
        assert await agent.call.flush(2)
    assert [turn.content for turn in await recorded(open_recall())] == [SENTENCES[0], "and on "]


async def test_it_is_known_whether_a_reply_goes_on(open_recall: OpenRecall) -> None:
    agent = Support(open_recall())
    async with Line(agent, lambda _: " ".join(SENTENCES[:2])).open() as line:
        assert agent._live is not None
        spoken = agent._live._observer.spoken
        await until(lambda: "word14." in spoken.text)
        assert spoken.goes_on(spoken.text)
        await until(lambda: "word24." in spoken.text)
        assert not spoken.goes_on(spoken.text)
        await until(lambda: line.session.agent_state == "listening")


async def test_nothing_is_heard_between_the_stop_and_the_handover(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written out takes its time; a reply that begins meanwhile is the successor's."""
    agent = Support(open_recall())
    async with Line(agent, lambda _: "hello.").open() as line:
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")

        async def slow(seconds: float) -> bool:
            agent.session.say("what nobody should hear")
            await anyio.sleep(1.0)
            return False

        monkeypatch.setattr(agent.call, "hand_over", slow)
        heard = line.speaker.seconds
        assert await hand_over(agent) == "kept"
        assert line.speaker.seconds == heard
        agent.session.say("and on")
        await until(lambda: line.speaker.seconds > heard)


async def test_the_last_sentence_is_finished_and_the_successor_has_nothing_to_add(
    open_recall: OpenRecall,
) -> None:
    first = Deployed(open_recall())
    line = Line(first, lambda _: "all is done.")
    line.session.tts.word_ms = 1000  # type: ignore[union-attr]
    async with line.open():
        await until(lambda: "is" in line.subtitles.text)
        second = await successor(open_recall())
        async with Line(second, story).open() as other:
            assert await hand_over(first) == "handed over"
            await until(lambda: second.told == ["handover"])
            await anyio.sleep(0.3)
            assert not other.heard
    [turn] = await recorded(open_recall())
    assert (turn.content.strip(), turn.interrupted) == ("all is done.", False)


async def test_nobody_speaks_and_it_is_done_at_once(open_recall: OpenRecall) -> None:
    first = Deployed(open_recall())
    async with Line(first, lambda _: "hello.").open() as line:
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")
        second = await successor(open_recall(follow_interval=30))
        async with Line(second).open() as other:
            began = time.monotonic()
            assert await hand_over(first) == "handed over"
            assert time.monotonic() - began < handover.TAKE_SECONDS
            other.stt.say("are you there")
            await until(lambda: "you said are you there" in other.subtitles.text)


async def test_words_of_the_caller_that_are_under_way_are_waited_for(
    open_recall: OpenRecall,
) -> None:
    first = Deployed(open_recall())
    line = Line(first, lambda ctx: "i see." if said(ctx, "user") else "hello.")
    line.stt.word_delay = 0.1
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")
        second = await successor(open_recall())
        async with Line(second).open():
            line.stt.say("my number is seven four nine")
            await anyio.sleep(0.15)
            assert await hand_over(first) == "handed over"
    turns = [(turn.role, turn.content.strip()) for turn in await recorded(open_recall())]
    assert turns[1:3] == [("user", "my number is seven four nine"), ("assistant", "i see.")]


async def test_a_reply_that_is_still_thought_about_is_begun_first(open_recall: OpenRecall) -> None:
    first = Deployed(open_recall())
    line = Line(first, lambda ctx: STORY if said(ctx, "user") else "hello.")
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")
        line.model.first_delay = 0.6
        second = await successor(open_recall())
        async with Line(second, story).open() as other:
            line.stt.say("tell me")
            await until(lambda: line.session.agent_state == "thinking")
            assert await hand_over(first) == "handed over"
            await until(lambda: "word64" in other.subtitles.text, 10)
            await until(lambda: other.session.agent_state == "listening")
            await second.call.flush(2)
    _, asked, begun, rest = await recorded(open_recall())
    assert asked.content == "tell me"
    assert f"{begun.content} {rest.content.strip()}" == STORY


async def test_without_an_end_of_a_sentence_it_stops_at_a_word_and_before_the_bound(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "SENTENCE_SECONDS", 0.4)
    endless = " ".join(f"word{n}" for n in range(10, 99))
    first = Deployed(open_recall())
    async with Line(first, lambda _: endless).open() as line:
        await until(lambda: "word12" in line.subtitles.text)
        second = await successor(open_recall())
        began = time.monotonic()
        assert await hand_over(first) == "handed over"
        assert 0.4 < time.monotonic() - began < 1.2
        await second.call.aclose()
    [turn] = await recorded(open_recall())
    assert endless.startswith(turn.content.strip())
    assert turn.interrupted


# --- where it is kept ---------------------------------------------------------------------------


async def test_nobody_takes_it_and_the_reply_goes_on(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "TAKE_SECONDS", 0.2)
    agent = Deployed(open_recall())
    async with Line(agent, story).open() as line:
        await until(lambda: "word12" in line.subtitles.text)
        assert await hand_over(agent) == "kept"
        await until(lambda: "word64" in line.subtitles.text, 10)
        await until(lambda: line.session.agent_state == "listening")
        assert agent.lost == []
        assert await agent.call.flush(2)
        line.stt.say("hello")
        await until(lambda: line.model.prompts and "hello" in said(line.model.prompts[-1]))
    begun, rest, *_ = await recorded(open_recall())
    assert f"{begun.content} {rest.content.strip()}" == STORY


async def test_where_the_records_are_away_nothing_is_cut(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall = open_recall(flush_wait=0.3)
    agent = Deployed(recall)

    async def away(*request: Any) -> None:
        raise StoreUnavailable("away")

    async with Line(agent, story).open() as line:
        await until(lambda: "word12" in line.subtitles.text)
        for name in ("append", "renew", "release", "read", "acquire"):
            monkeypatch.setattr(transport_of(recall), name, away)
        agent.call.record_turn("user", "on its way")
        assert await hand_over(agent) == "kept"
        assert line.session.current_speech is not None
        await until(lambda: "word64" in line.subtitles.text, 10)
        monkeypatch.undo()
        await until(lambda: line.session.agent_state == "listening")
        assert await agent.call.flush(5)
    assert STORY in [turn.content.strip() for turn in await recorded(open_recall())]


async def test_a_tool_that_runs_is_not_left_alone(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "SENTENCE_SECONDS", 0.4)

    class Teller(Deployed):
        ran = 0

        @function_tool
        async def charge(self) -> str:
            """Charge the card."""
            await anyio.sleep(1.0)
            type(self).ran += 1
            return "charged"

    def reply(chat_ctx: llm.ChatContext) -> Any:
        if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
            return "it is charged."
        return [tool_call("charge")] if said(chat_ctx, "user") else "hello."

    first = Teller(open_recall())
    async with Line(first, reply).open() as line:
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")
        second = await successor(open_recall())
        line.stt.say("charge me")
        await until(lambda: line.session.agent_state == "thinking")
        await anyio.sleep(0.1)
        assert await hand_over(first) == "kept", "it runs for longer than is waited for"
        assert first.call.state is CallState.HOLDING
        monkeypatch.setattr(handover, "SENTENCE_SECONDS", 5.0)
        assert await hand_over(first) == "handed over"
        assert Teller.ran == 1
        assert (await recorded(open_recall()))[-1].content.strip() == "it is charged."
        await second.call.aclose()


async def test_two_who_ask_at_once_get_the_same_answer(open_recall: OpenRecall) -> None:
    first = Deployed(open_recall())
    async with Line(first, lambda _: "hello.").open():
        await until(lambda: first.call.state is CallState.HOLDING)
        second = await successor(open_recall())
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await hand_over(first))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert answers == ["handed over", "handed over"]
        await second.call.aclose()


# --- what the successor is told -----------------------------------------------------------------


def turn(role: Any, content: str, interrupted: bool = False) -> Turn:
    return Turn(seq=1, role=role, content=content, interrupted=interrupted, at=1.0)


CUT = (turn("user", "tell me"), turn("assistant", "once.", interrupted=True))
CASES: list[tuple[tuple[Turn, ...], tuple[str, ...], str]] = [
    ((), (), "nothing"),
    (CUT, (), "rest"),
    ((turn("assistant", "done."),), (), "nothing"),
    ((turn("user", "hello"),), (), "answer"),
    ((turn("user", "hello"),), ("assistant",), "resume"),
    ((turn("assistant", "done."),), ("user",), "nothing"),
]


@pytest.mark.parametrize(("turns", "speaking", "due"), CASES)
def test_what_the_caller_waits_for(
    turns: tuple[Turn, ...], speaking: tuple[Any, ...], due: str
) -> None:
    partials = tuple(Partial(role=role, text="so", at=2.0, after=1) for role in speaking)
    assert what_is_due(Briefing(call_id=ROOM, turns=turns, partials=partials)) == due
