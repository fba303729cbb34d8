"""What changes under a running session doubles no turn and loses none."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from livekit import rtc
from livekit.agents import llm, stt

from recall_livekit import CallState, Recall
from recall_livekit.testing import voices
from recall_livekit.testing.voices import said

from ..conftest import OpenRecall
from .desk import CALLER, FakeRoom, Publication, Somebody, a_desk, a_job
from .line import Line, greeted, until
from .test_agent import ROOM, Support, talk, turns

pytestmark = pytest.mark.anyio


async def partials(recall: Recall) -> list[str]:
    return [partial.text for partial in (await recall.read(ROOM)).partials]


async def test_a_room_that_reconnects_changes_nothing(open_recall: OpenRecall) -> None:
    room = FakeRoom(Somebody("anna", CALLER, Publication()))
    with a_job(room) as job:
        job.shutdown = lambda *_: None
        agent = Support(open_recall())
        async with Line(agent).open() as line:
            await greeted(line)
            await talk(line, "one")
            before = agent.call.epoch
            for event, state in (
                ("reconnecting", rtc.ConnectionState.CONN_RECONNECTING),
                ("reconnected", rtc.ConnectionState.CONN_CONNECTED),
            ):
                room.connection_state = state
                room.emit("connection_state_changed", state)
                room.emit(event)
                await anyio.sleep(0.02)
            await talk(line, "two")
            assert await agent.call.flush(2)
            assert (agent.call.state, agent.call.epoch) == (CallState.HOLDING, before)
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "one"),
        ("assistant", "you said one"),
        ("user", "two"),
        ("assistant", "you said two"),
    ]
    assert agent.told == ["fresh"]


async def test_options_that_change_in_mid_call_change_nothing(open_recall: OpenRecall) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        line.session.update_options(endpointing_opts={"min_delay": 0.02, "max_delay": 0.1})
        await talk(line, "one")
        line.session.update_options(turn_detection="stt")
        await talk(line, "two")
        assert await agent.call.flush(2)
    assert [text for _, text in await turns(open_recall())] == [
        "hello there",
        "one",
        "you said one",
        "two",
        "you said two",
    ]


async def test_a_reply_that_waits_for_another_is_a_turn_of_its_own(open_recall: OpenRecall) -> None:
    texts = iter(["first one two three four five", "second six seven eight nine ten"])
    agent = Support(open_recall(partial_interval=0.02))
    async with Line(agent, lambda _: next(texts)).open() as line:
        line.session.generate_reply(instructions="And then?")
        await until(lambda: "second six seven" in line.subtitles.text)
        await anyio.sleep(0.1)
        [under_way] = await partials(open_recall())
        assert under_way.startswith("second six")
        assert "first" not in under_way
        await until(lambda: line.session.agent_state == "listening")
        assert await agent.call.flush(2)
    assert await turns(open_recall()) == [
        ("assistant", "first one two three four five"),
        ("assistant", "second six seven eight nine ten"),
    ]


@pytest.fixture
def preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recogniser that tells what it takes for the whole turn before it is sure."""
    end: Any = voices._Turn.end

    def guess_and_end(turn: Any) -> None:
        turn._send(stt.SpeechEventType.PREFLIGHT_TRANSCRIPT, " ".join(turn._words))
        asyncio.get_running_loop().call_later(0.1, end, turn)

    monkeypatch.setattr(voices._Turn, "end", guess_and_end)


class Adding(Support):
    """Changes the context of the reply: what was prepared for the turn is thrown away."""

    async def on_user_turn_completed(
        self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
    ) -> None:
        await anyio.sleep(0.1)
        turn_ctx.add_message(role="system", content="Be brief.")


async def test_a_preemptive_attempt_that_is_discarded_leaves_no_trace(
    open_recall: OpenRecall, preflight: None, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Adding(open_recall())
    line = Line(agent)
    line.session.options.preemptive_generation["preemptive_tts"] = True
    speeches: list[Any] = []
    line.session.on("speech_created", speeches.append)
    async with line.open():
        await greeted(line)
        await talk(line, "a table please")
        await talk(line, "for two")
        assert await agent.call.flush(2)
    assert "preemptive generation invalidated" in caplog.text
    assert len(speeches) > 3, "an attempt is a speech too"
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "a table please"),
        ("assistant", "you said a table please"),
        ("user", "for two"),
        ("assistant", "you said for two"),
    ]


async def test_a_preemptive_attempt_that_is_used_is_one_turn(
    open_recall: OpenRecall, preflight: None
) -> None:
    agent = Support(open_recall())
    line = Line(agent)
    line.session.options.preemptive_generation["preemptive_tts"] = True
    async with line.open():
        await greeted(line)
        await talk(line, "a table please")
        assert len(line.prompts) == 2, "the reply was made once, ahead of the turn's end"
        assert await agent.call.flush(2)
    assert [text for _, text in await turns(open_recall())] == [
        "hello there",
        "a table please",
        "you said a table please",
    ]


async def test_agents_3668_a_session_that_is_started_again_goes_on(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch):
        async with Line(Support(open_recall())).open() as line:
            await greeted(line)
            await talk(line, "my number is seven")
        again = Support(open_recall(seed_wait=5.0))
        async with Line(again).open() as line:
            await until(lambda: "my number is seven" in line.subtitles.text)
            await talk(line, "are you back")
            assert await again.call.flush(2)
            assert "my number is seven" in said(line.model.prompts[-1])
    assert again.told == ["resume"]
    assert [text for _, text in await turns(open_recall())][1:4] == [
        "my number is seven",
        "you said my number is seven",
        "you said my number is seven",
    ]


async def test_agents_3668_a_session_that_was_never_closed_does_not_silence_the_next(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch):
        async with Line(Support(open_recall())).open() as old:
            await greeted(old)
            await talk(old, "my number is seven")
            again = Support(open_recall(seed_wait=5.0))
            async with Line(again).open() as line:
                await until(lambda: "my number is seven" in line.subtitles.text)
                assert again.call.state is CallState.HOLDING
                assert again.told == ["resume"]
