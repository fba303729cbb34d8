"""What an agent is told of its call when, and when not again."""

from __future__ import annotations

import anyio
import pytest

from recall_livekit import CallState

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, until
from .test_agent import ROOM, Support, earlier_call, talk

pytestmark = pytest.mark.anyio
HEAD = "You are going on with a call"


def heads(prompt: list[str]) -> int:
    return sum(text.startswith(HEAD) for text in prompt)


async def test_what_was_said_before_the_lease_was_taken_is_no_news(
    open_recall: OpenRecall,
) -> None:
    """The records were away at the beginning: the greeting is in them when they are read."""
    freezer = Freezer(timeout=0.3, frozen=True)
    agent = Support(open_recall(faults=freezer, flush_wait=0.3))
    async with Line(agent).open() as line:
        await talk(line, "my number is seven")
        freezer.thaw()
        await until(lambda: agent.call.state is CallState.HOLDING, 15)
        await talk(line, "and eight")
        assert [heads(prompt) for prompt in line.prompts][-1] == 0
        assert [text.strip() for text in line.prompts[-1]].count("my number is seven") == 1


async def test_an_application_that_shortens_its_context_is_not_undone(
    open_recall: OpenRecall,
) -> None:
    """Neither by a later model call, nor by a lease that lapsed and was taken again."""
    await earlier_call(open_recall, "a table for four")
    freezer = Freezer(timeout=0.3)
    agent = Support(open_recall(faults=freezer, lease_ttl=2.0, flush_wait=0.3))
    async with Line(agent).open() as line:
        await until(lambda: agent.call.state is CallState.HOLDING and line.heard)
        await talk(line, "my number is seven")
        await agent.update_chat_ctx(agent.chat_ctx.copy().truncate(max_items=2))
        epoch = agent.call.epoch
        freezer.freeze()
        await anyio.sleep(3)
        freezer.thaw()
        await until(lambda: agent.call.epoch > epoch, 15)
        await talk(line, "and eight")
        assert heads(line.prompts[-1]) == 0
        assert "a table for four" not in line.prompts[-1]


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_lease_that_lapsed_and_is_taken_again_tells_the_agent_nothing(
    open_recall: OpenRecall, resumed: bool
) -> None:
    """It is this worker's own call, of which it knows all: nobody was interrupted."""
    if resumed:
        await earlier_call(open_recall, "a table for four")
    freezer = Freezer(timeout=0.3)
    agent = Support(open_recall(faults=freezer, lease_ttl=2.0, flush_wait=0.3))
    async with Line(agent).open() as line:
        await until(lambda: agent.call.state is CallState.HOLDING and line.heard)
        await talk(line, "my number is seven")
        epoch = agent.call.epoch
        freezer.freeze()
        await anyio.sleep(3)
        freezer.thaw()
        await until(lambda: agent.call.epoch > epoch, 15)
        await until(lambda: agent.call.state is CallState.HOLDING)
        await talk(line, "and eight")
        assert agent.call.known
        assert not agent.call.briefing.fresh
        assert [heads(prompt) for prompt in line.prompts][-1] == resumed
        said = [text.strip() for text in line.prompts[-1]]
        assert said.count("my number is seven") == 1
        assert said.count("a table for four") == resumed


async def test_what_another_worker_recorded_meanwhile_is_told(open_recall: OpenRecall) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await until(lambda: agent.call.state is CallState.HOLDING and line.heard)
        await talk(line, "my number is seven")
        async with open_recall().resume(ROOM, if_held="steal") as other:
            await until(lambda: agent.call.state is not CallState.HOLDING)
            other.record_turn("user", "and my name is Anna")
            await other.flush(2)
        await until(lambda: agent.call.state is CallState.HOLDING)
        await until(lambda: "you said and my name is Anna" in line.subtitles.text)
        said = [text.strip() for text in line.prompts[-1]]
        assert heads(said) == 1
        assert said.count("my number is seven") == 1
        assert said.count("and my name is Anna") == 1
