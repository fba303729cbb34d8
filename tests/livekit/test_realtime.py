"""Realtime models that take less than OpenAI's: what they know of a call that goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from livekit.agents import Agent, AgentSession
from livekit.agents.voice import TranscriptSynchronizer

from recall_livekit import Attached, CallState, Recall, RecallAgent, attach
from recall_livekit.livekit.seeds import notes, realtime

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Speaker, Subtitles, until
from .realtime_model import FakeRealtime

pytestmark = pytest.mark.anyio
ROOM = "support room"


class Support(RecallAgent):
    def __init__(self, recall: Recall, **options: Any) -> None:
        options = {"instructions": "Be kind."} | options
        super().__init__(resume=ROOM, recall=recall, **options)


class Hasty(Support):
    """Overrides the hook without `super()`, and speaks at once."""

    async def on_enter(self) -> None:
        self.session.generate_reply(instructions="Say something.")


@asynccontextmanager
async def talking(
    agent: Agent,
    model: FakeRealtime,
    before: Callable[[AgentSession[Any]], Awaitable[None]] | None = None,
) -> AsyncIterator[AgentSession[Any]]:
    session: AgentSession[Any] = AgentSession(
        llm=model, vad=None, aec_warmup_duration=0, session_close_transcript_timeout=0.05
    )
    ends = TranscriptSynchronizer(next_in_chain_audio=Speaker(), next_in_chain_text=Subtitles())
    session.output.audio, session.output.transcription = ends.audio_output, ends.text_output
    if before is not None:
        await before(session)
    try:
        await session.start(agent)
        yield session
    finally:
        await session.aclose()
        await ends.aclose()
        if (live := getattr(agent, "_live", None)) is not None:
            await live.closed()


async def earlier_call(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("assistant", "how can I help?", message_id="item_hello")
        call.record_turn("user", "a table for four", message_id="item_order")
        call.update_working_state(goal="book a table")
        call.record_action("charge", arguments='{"euros": 20}', call_id="call_charge")


async def read(agent: RecallAgent) -> None:
    """The records are read before the agent starts, as on a worker that connects to a room."""
    assert await agent.call.ready(5)


async def test_agents_4899_seed_replayed_as_live_input(open_recall: OpenRecall) -> None:
    """A model whose history is fixed is told it in its instructions; nothing is pushed."""
    await earlier_call(open_recall)
    model, agent = FakeRealtime(), Support(open_recall())
    await read(agent)
    async with talking(agent, model):
        await until(lambda: model.live.said)
        await asyncio.sleep(0.05)
    [said] = model.live.said
    assert said.instructions.startswith("Be kind.\n\n")
    assert "[you] how can I help?\n[caller] a table for four" in said.instructions
    assert '[tool charge] {"euros": 20} -> ' in said.instructions
    assert "Goal: book a table" in said.instructions
    assert said.history == []
    assert model.live.taken_for_live == []
    assert model.live.refused == []


async def test_records_too_late_for_a_fixed_model_are_said_once(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    await earlier_call(open_recall)
    freezer = Freezer(frozen=True)
    agent = Support(open_recall(faults=freezer, seed_wait=0.05, flush_wait=0.5))
    model = FakeRealtime()
    with caplog.at_level(logging.WARNING, "recall_livekit"):
        async with talking(agent, model):
            freezer.thaw()
            await until(lambda: agent.call.state is CallState.HOLDING)
            await until(lambda: "does not know what was said before" in caplog.text)
            model.live.user_says("hello?")
            await until(lambda: model.live.said)
            assert await agent.call.flush(2)
    assert caplog.text.count("does not know what was said before") == 1
    assert model.live.refused == []
    assert "hello?" in [turn.content for turn in await open_recall().turns(ROOM)]


async def test_late_records_reach_a_model_that_takes_instructions(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall)
    freezer = Freezer(frozen=True)
    agent = Support(open_recall(faults=freezer, seed_wait=0.05, flush_wait=0.5))
    model = FakeRealtime("instructions")
    async with talking(agent, model):
        assert model.live.instructions == "Be kind."
        freezer.thaw()
        await until(lambda: "[caller] a table for four" in model.live.instructions)
    assert model.live.taken_for_live == []


async def test_a_model_that_takes_no_foreign_calls_is_told_them_as_text(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall)
    model, agent = FakeRealtime("history", "instructions"), Support(open_recall())
    async with talking(agent, model):
        await until(lambda: model.live.said)
    [said] = model.live.said
    assert said.history == [("assistant", "how can I help?"), ("user", "a table for four")]
    assert "[tool charge]" in said.instructions
    assert "a table for four" not in said.instructions


async def test_an_agent_that_speaks_at_once_knows_the_history_all_the_same(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "LOOK_INTERVAL", 3.0)  # so that its own words are first
    await earlier_call(open_recall)
    model, agent = FakeRealtime("history", "instructions"), Hasty(open_recall())
    await read(agent)
    async with talking(agent, model):
        await until(lambda: model.live.said)
    assert ("user", "a table for four") in model.live.said[0].history
    assert "Goal: book a table" in model.live.said[0].instructions


async def test_what_the_application_tells_the_model_later_does_not_cost_the_notes(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall)
    model, agent = FakeRealtime("history", "instructions"), Support(open_recall())
    async with talking(agent, model):
        await until(lambda: "Goal" in model.live.instructions)
        await agent.update_instructions("Be brief.")
        assert model.live.instructions.startswith("Be brief.\n\n")
        assert model.live.instructions.count("Goal: book a table") == 1
    assert agent.instructions == "Be brief."


@pytest.mark.parametrize("mutable", [("history", "instructions", "tools"), ()])
async def test_an_agent_that_takes_over_in_the_session_knows_it_too(
    open_recall: OpenRecall, mutable: tuple[Any, ...]
) -> None:
    await earlier_call(open_recall)
    recall = open_recall()
    model, agent = FakeRealtime(*mutable), Support(recall)
    await read(agent)
    async with talking(agent, model) as session:
        await until(lambda: model.live.said)
        session.update_agent(Hasty(recall, instructions="Be stern."))
        await until(
            lambda: len(session.history.items) and model.live.instructions[:9] == "Be stern."
        )
        await until(lambda: model.live.said and model.live.said[-1].instructions[:9] == "Be stern.")
    said = model.live.said[-1]
    assert said.instructions.count("Goal: book a table") == 1
    known = str(said.history) + said.instructions
    assert known.count("a table for four") == 1


@pytest.mark.parametrize("mutable", [("history", "instructions"), ()])
async def test_agents_with_bases_of_their_own_are_told_too(
    open_recall: OpenRecall, mutable: tuple[Any, ...]
) -> None:
    await earlier_call(open_recall)
    model = FakeRealtime(*mutable)
    attached: list[Attached] = []

    async def on_session(session: AgentSession[Any]) -> None:
        attached.append(attach(session, resume=ROOM, recall=open_recall()))
        assert await attached[0].call.ready(5)

    agent = Agent(instructions="Be kind.")
    async with talking(agent, model, on_session):
        await until(lambda: model.live.said)
    await attached[0].call.aclose()
    [said] = model.live.said
    assert said.instructions.startswith("Be kind.\n\n")
    assert (str(said.history) + said.instructions).count("a table for four") == 1


async def test_a_livekit_of_other_names_costs_one_warning(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Renamed(Support):
        """As if livekit-agents kept its instructions elsewhere."""

        def __getattribute__(self, name: str) -> Any:
            if name == "_instructions" and "elsewhere" in self.__dict__:
                raise AttributeError(name)
            return super().__getattribute__(name)

        @property
        def instructions(self) -> str:
            return "Be kind."

    await earlier_call(open_recall)
    notes._warn_of_name.cache_clear()
    model, agent = FakeRealtime(), Renamed(open_recall())
    agent.__dict__["elsewhere"] = True
    await read(agent)
    with caplog.at_level(logging.WARNING, "recall_livekit"):
        async with talking(agent, model):
            await until(lambda: model.live.said)
    assert model.live.said[0].instructions == "Be kind."
    assert caplog.text.count("keeps an agent's instructions elsewhere") == 1


async def test_a_fresh_call_changes_nothing(open_recall: OpenRecall) -> None:
    model, agent = FakeRealtime("history", "instructions"), Support(open_recall())
    async with talking(agent, model):
        model.live.user_says("hello")
        await until(lambda: model.live.said)
        assert model.live.instructions == "Be kind."
    assert agent.instructions == "Be kind."


async def test_a_session_that_never_starts_leaves_nothing_behind(open_recall: OpenRecall) -> None:
    class Broken(FakeRealtime):
        def session(self, *, turn_detection_disabled: bool = False) -> Any:
            raise ValueError("no connection")

    await earlier_call(open_recall)
    agent = Support(open_recall())
    await read(agent)
    session: AgentSession[Any] = AgentSession(llm=Broken("history", "instructions"), vad=None)
    with pytest.raises(ValueError, match="no connection"):
        await session.start(agent)
    assert agent._live is not None
    realtime = agent._live._seeder.realtime
    await agent._live.withdraw()
    assert realtime is not None
    assert not realtime._background._tasks
