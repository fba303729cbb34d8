"""`attach`: a session whose agents have bases of their own survives its worker all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from livekit.agents import Agent, llm

from recall_livekit import Attached, Briefing, CallState, Recall, attach
from recall_livekit.rooms.orders import Orders
from recall_livekit.testing.voices import said

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .desk import a_desk
from .line import Line, echo, until
from .test_agent import ROOM, Order, earlier_call, talk, turns
from .test_standby import KINDS, holder

pytestmark = pytest.mark.anyio


class Plain(Agent):
    """An agent that knows nothing of us, and greets as most do."""

    def __init__(self) -> None:
        super().__init__(instructions="Be kind.")
        self.attached: Attached | None = None

    async def on_enter(self) -> None:
        if self.attached is None or await self.attached.fresh():
            self.session.say("hello there")


@asynccontextmanager
async def attached_line(
    recall: Recall, agent: Plain | None = None, reply: Any = echo, **options: Any
) -> AsyncIterator[tuple[Line, Attached]]:
    agent = agent or Plain()
    line = Line(agent, reply)
    agent.attached = attached = attach(line.session, resume=ROOM, recall=recall, **options)
    async with line.open():
        yield line, attached
    await attached.closed()


class Told:
    """Hooks of an application, which notes them."""

    def __init__(self) -> None:
        self.told: list[object] = []

    async def fresh(self) -> None:
        self.told.append("fresh")

    async def resume(self, briefing: Briefing | None) -> None:
        self.told.append(briefing and [turn.content for turn in briefing.turns])

    async def handover(self, briefing: Briefing) -> None:
        self.told.append("handover")

    async def lost(self, reason: str) -> None:
        self.told.append(reason)

    @property
    def hooks(self) -> dict[str, Any]:
        return {
            "on_fresh": self.fresh,
            "on_resume": self.resume,
            "on_handover": self.handover,
            "on_lease_lost": self.lost,
        }


@pytest.mark.over_http
async def test_a_fresh_call_is_recorded_and_the_next_worker_goes_on(
    open_recall: OpenRecall,
) -> None:
    async with attached_line(open_recall()) as (line, attached):
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "my number is seven")
        assert await attached.call.flush(2)
    assert await turns(open_recall()) == [
        ("assistant", "hello there"),
        ("user", "my number is seven"),
        ("assistant", "you said my number is seven"),
    ]
    agent = Plain()
    async with attached_line(open_recall(), agent) as (line, attached):
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        assert "hello there" not in line.subtitles.text
        [prompt] = line.prompts
        assert prompt[0] == "Be kind."
        assert prompt[1].startswith("You are going on with a call")
        assert "Do not greet again" in prompt[-1]
        assert "my number is seven" in [text.strip() for text in said(agent.chat_ctx)]
        assert attached.call.state is CallState.HOLDING


async def test_the_applications_hooks_are_called_once(open_recall: OpenRecall) -> None:
    first, second = Told(), Told()
    async with attached_line(open_recall(), **first.hooks) as (line, _):
        await until(lambda: first.told)
        await talk(line, "my number is seven")
        async with open_recall().resume(ROOM, if_held="steal"):
            await until(lambda: len(first.told) == 2)
            assert first.told == ["fresh", "taken over"]
    async with attached_line(open_recall(), **second.hooks) as (line, _):
        await until(lambda: second.told)
        await talk(line, "again")
    [briefed] = second.told
    assert isinstance(briefed, list)
    assert "my number is seven" in briefed


async def test_a_slow_store_costs_the_first_model_call_its_wait_and_the_seed_is_there(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall, "my number is seven")
    freezer = Freezer(timeout=0.5, frozen=True)

    class Eager(Plain):
        async def on_enter(self) -> None:
            self.session.generate_reply()

    recall = open_recall(faults=freezer, seed_wait=10.0, flush_wait=0.5)
    async with attached_line(recall, Eager()) as (line, _):
        await anyio.sleep(0.2)
        assert line.prompts == []
        freezer.thaw()
        await until(lambda: line.prompts)
        assert "my number is seven" in line.prompts[0]


@pytest.mark.over_http
async def test_a_later_worker_is_silent_deaf_and_takes_over(open_recall: OpenRecall) -> None:
    async with attached_line(open_recall()) as (speaking, first):
        await until(lambda: speaking.heard)
        async with attached_line(open_recall()) as (line, second):
            await until(lambda: second.call.state is CallState.STANDBY)
            line.session.say("what nobody should hear")
            await talk(speaking, "still with the first")
            assert not line.heard
            assert line.subtitles.text == ""
            await first.call.flush(2)
            await speaking.session.aclose()
            await until(lambda: "you said still with the first" in line.subtitles.text)
            assert "hello there" not in line.subtitles.text


@KINDS
async def test_a_standby_waits_without_a_session(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, orders: Orders
) -> None:
    with a_desk(monkeypatch, orders) as desk:
        async with holder(open_recall, desk) as held:
            agent = Plain()
            line = Line(agent)
            agent.attached = attached = attach(line.session, resume=ROOM, recall=open_recall())
            standing = asyncio.create_task(attached.stand_by(agent))
            await until(lambda: attached.call.state is CallState.STANDBY)
            await asyncio.sleep(0.1)
            assert not standing.done()
            await held.aclose("handover")
            assert await asyncio.wait_for(standing, 5)
            async with line.open():
                await until(lambda: "you said a table for four" in line.subtitles.text)
                assert "hello there" not in line.subtitles.text
        await attached.closed()


async def test_a_holder_whose_call_is_stolen_falls_silent(open_recall: OpenRecall) -> None:
    story = " ".join(f"word{n}" for n in range(100))
    async with attached_line(open_recall(), reply=lambda _: story) as (line, attached):
        await until(lambda: "hello there" in line.subtitles.text)
        line.session.generate_reply()
        await until(lambda: "word5" in line.subtitles.text)
        async with open_recall().resume(ROOM, if_held="steal"):
            await until(lambda: not attached.call.may_speak, 1)
            await anyio.sleep(0.1)
            heard = line.speaker.seconds
            await anyio.sleep(0.3)
            assert line.speaker.seconds == heard
            assert not await attached.fresh()


async def test_the_agent_that_was_active_comes_back(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_handoff("billing", previous="plain")
        call.record_turn("user", "my bill please")

    class Billing(Agent):
        async def on_enter(self) -> None:
            self.session.say("billing here")

    factories = {"billing": lambda: Billing(instructions="You do the bills.")}
    async with attached_line(open_recall(), resume_agents=factories) as (line, _):
        await until(lambda: "you said my bill please" in line.subtitles.text)
        assert isinstance(line.session.current_agent, Billing)
        assert line.prompts[-1][0] == "You do the bills."
        assert "here" not in line.subtitles.text, "neither of them greets"
        assert "hello" not in line.subtitles.text


async def test_a_session_that_has_started_already_is_recorded_from_there_on(
    open_recall: OpenRecall,
) -> None:
    await earlier_call(open_recall, "my number is seven")
    agent = Plain()
    line = Line(agent)
    async with line.open():
        await until(lambda: "hello there" in line.subtitles.text)
        await until(lambda: line.session.agent_state == "listening")
        attached = attach(line.session, resume=ROOM, recall=open_recall())
        await until(lambda: "you said my number is seven" in line.subtitles.text)
        await talk(line, "and eight")
        assert await attached.call.flush(2)
    await attached.closed()
    recorded = await turns(open_recall())
    assert recorded[0] == ("user", "my number is seven")
    assert ("user", "and eight") in recorded


async def test_userdata_comes_back_typed(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "four seats")
        call.record_userdata({"seats": 4, "name": "Anna"})
    async with attached_line(open_recall(), userdata_type=Order) as (line, _):
        await until(lambda: line.heard)
        assert line.session.userdata == Order(4, "Anna")


async def test_a_session_is_attached_once(open_recall: OpenRecall) -> None:
    async with attached_line(open_recall()) as (line, _):
        with pytest.raises(RuntimeError, match="attach it once"):
            attach(line.session, resume=ROOM, recall=open_recall())


async def test_a_session_that_was_not_started_is_attached_once_too(open_recall: OpenRecall) -> None:
    line = Line(Agent(instructions="Be kind."))
    attached = attach(line.session, resume=ROOM, recall=open_recall())
    with pytest.raises(RuntimeError, match="attach it once"):
        attach(line.session, resume="another", recall=open_recall())
    await attached.call.aclose()


async def test_a_store_that_cannot_be_opened_does_not_end_the_call(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a directory")
    async with attached_line(Recall.open(f"sqlite:///{blocked}")) as (line, _):
        await until(lambda: "hello there" in line.subtitles.text)
        await talk(line, "hello")
    assert "the call goes on" in caplog.text


async def test_a_hook_that_fails_does_not_end_the_call(
    open_recall: OpenRecall, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> None:
        raise RuntimeError("no greeting today")

    async with attached_line(open_recall(), on_fresh=broken) as (line, _):
        await talk(line, "hello")
    assert "no greeting today" in caplog.text


def test_the_reply_that_tests_hear_is_the_echo() -> None:
    assert echo(llm.ChatContext.empty()) == "hello there"


async def test_the_first_words_come_before_what_an_agent_does_on_its_own(
    open_recall: OpenRecall,
) -> None:
    done: list[str] = []

    class Busy(Plain):
        async def on_enter(self) -> None:
            done.append("entered")

    async def resumed(briefing: Briefing | None) -> None:
        done.append("resumed")

    async with open_recall().resume(ROOM) as call:
        call.record_turn("user", "my number is seven")
    async with attached_line(open_recall(seed_wait=5.0), Busy(), on_resume=resumed):
        await until(lambda: len(done) == 2)
    assert done == ["resumed", "entered"]


async def test_a_second_session_of_the_same_call_in_one_job_is_refused(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not be recorded, and would speak on after the lease is lost."""
    recall = open_recall()
    with a_desk(monkeypatch):
        async with attached_line(recall):
            with pytest.raises(RuntimeError, match="has a session of this call already"):
                attach(Line(Plain()).session, resume=ROOM, recall=recall)
