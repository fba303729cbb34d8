"""Callers who come back: the page reloaded, the network lost, LiveKit restarted, dialled again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from livekit.agents import AgentSession, CloseReason, llm
from livekit.agents.voice.room_io import RoomIO

from recall_livekit import CallState, Recall
from recall_livekit.engine.runs import Origin
from recall_livekit.livekit.sound import ring
from recall_livekit.rooms.orders import Orders

from ..conftest import OpenRecall
from .desk import AGENT, CALLER, Desk, Publication, Somebody, a_desk
from .line import Line, greeted, until
from .test_agent import ROOM, Support, talk, turns

pytestmark = pytest.mark.anyio


@contextmanager
def desk(monkeypatch: pytest.MonkeyPatch, sid: str, *callers: Somebody) -> Iterator[Desk]:
    """A job for the room of this sid, with these callers in it, connected."""
    with a_desk(monkeypatch, sid=sid) as here:
        if callers:
            here.room.remote_participants = {one.identity: one for one in callers}
        yield here


def person(identity: str, number: str | None = None) -> Somebody:
    caller = Somebody(identity, CALLER, Publication())
    if number is not None:
        caller.attributes[ring.NUMBER] = number
    return caller


async def call_then_leave(agent: Support) -> None:
    """The caller says something, hears the answer, and is gone."""
    async with Line(agent).open() as line:
        await greeted(line)
        await talk(line, "my number is seven")
        line.session._close_soon(reason=CloseReason.PARTICIPANT_DISCONNECTED)
        assert agent._live is not None
        await until(lambda: agent.call.state.value == "closed")
        await agent._live.closed()


async def comes_back(agent: Support) -> list[str]:
    """What the agent was asked to do when the caller is back."""
    line = Line(agent)
    async with line.open():
        await until(lambda: agent.told and line.heard)
    return agent.told


@pytest.mark.over_http
async def test_a_page_that_is_reloaded_goes_on(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_one") as here:
        await call_then_leave(Support(open_recall()))
        assert here.shutdown.called, "the job of a call whose caller left ends"
    with desk(monkeypatch, "RM_one"):
        assert await comes_back(Support(open_recall(seed_wait=5.0))) == ["resume"]


async def test_who_comes_back_too_late_begins_a_new_call(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_one"):
        await call_then_leave(Support(open_recall()))
    await anyio.sleep(0.3)
    with desk(monkeypatch, "RM_one"):
        late = Support(open_recall(seed_wait=5.0, rejoin_window=0.2))
        assert await comes_back(late) == ["fresh"]


@pytest.mark.over_http
@pytest.mark.parametrize(
    ("again", "told"),
    [("+4930123", "resume"), ("+4930999", "fresh"), (None, "fresh")],
    ids=["the same number", "another number", "nobody knows"],
)
async def test_a_call_that_is_dialled_again(
    open_recall: OpenRecall,
    monkeypatch: pytest.MonkeyPatch,
    again: str | None,
    told: str,
) -> None:
    """A telephone call has a room of its own each time; the application names it by the number."""
    with desk(monkeypatch, "RM_one"):
        await call_then_leave(Support(open_recall(), caller="+4930123"))
    monkeypatch.setattr("recall_livekit.keeper.CALLER_SECONDS", 0.1)
    with desk(monkeypatch, "RM_two") as here:
        here.room.remote_participants = {}
        agent = Support(open_recall(seed_wait=5.0), caller=again)
        assert await comes_back(agent) == [told]


@pytest.mark.parametrize("left", [True, False], ids=["the caller left", "LiveKit restarted"])
async def test_who_is_back_in_another_room_after_the_window_begins_a_new_call(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, left: bool
) -> None:
    with desk(monkeypatch, "RM_one"):
        first = Support(open_recall(), caller="+4930123")
        if left:
            await call_then_leave(first)
        else:
            await comes_back(first)
    await anyio.sleep(0.3)
    with desk(monkeypatch, "RM_two"):
        agent = Support(open_recall(seed_wait=5.0, rejoin_window=0.2), caller="+4930123")
        assert await comes_back(agent) == ["fresh"]


@pytest.mark.over_http
@pytest.mark.parametrize("same", [True, False])
async def test_the_application_may_decide_which_call_it_is(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    asked: list[tuple[Origin, Origin]] = []

    def same_call(previous: Origin, current: Origin) -> bool:
        asked.append((previous, current))
        return same

    with desk(monkeypatch, "RM_one"):
        await call_then_leave(Support(open_recall(), caller="anna"))
    with desk(monkeypatch, "RM_two"):
        agent = Support(open_recall(seed_wait=5.0, same_call=same_call), caller="bert")
        assert await comes_back(agent) == ["resume" if same else "fresh"]
    previous, current = asked[-1]
    assert (previous.room_sid, previous.caller) == ("RM_one", "anna")
    assert (current.room_sid, current.caller) == ("RM_two", "bert")


@pytest.mark.over_http
@pytest.mark.parametrize(
    ("there", "told"),
    [("anna", "resume"), ("bert", "fresh")],
    ids=["the same caller", "another caller"],
)
async def test_after_a_restart_of_livekit_the_caller_is_known_by_who_is_in_the_room(
    open_recall: OpenRecall,
    monkeypatch: pytest.MonkeyPatch,
    there: str,
    told: str,
) -> None:
    """A worker dispatched to a room is not told who is in it, and the room has a new sid."""
    with desk(monkeypatch, "RM_one", person("anna")) as here:
        async with Linked(monkeypatch, here, Line(Support(open_recall()))) as line:
            await greeted(line)
            await talk(line, "my number is seven")
    with desk(monkeypatch, "RM_two") as here:
        here.room.remote_participants = {}
        agent = Support(open_recall(seed_wait=5.0))
        asyncio.get_running_loop().call_later(
            0.2, here.room.remote_participants.update, {there: person(there)}
        )
        assert await comes_back(agent) == [told]


async def test_agents_2009_a_room_of_the_same_name_on_the_next_day_is_another_call(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_evening"):
        async with Line(Support(open_recall())).open() as line:
            await greeted(line)
            await talk(line, "my number is seven")
    with desk(monkeypatch, "RM_morning", person("bert")):
        agent = Support(open_recall(seed_wait=5.0))
        line = Line(agent)
        async with line.open():
            await until(lambda: line.heard)
            assert agent.told == ["fresh"]
            assert "seven" not in " ".join(line.prompts[0])


async def test_agents_2009_a_room_that_was_never_closed_is_another_call_after_hours(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_one"):
        async with Line(Support(open_recall())).open() as line:
            await greeted(line)
            await talk(line, "my number is seven")
    await anyio.sleep(0.4)
    with desk(monkeypatch, "RM_one"):
        agent = Support(open_recall(seed_wait=5.0, resume_window=0.3))
        assert await comes_back(agent) == ["fresh"]


async def test_agents_4345_the_outcome_is_known_though_no_shutdown_callback_runs(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_one") as here:
        here.job.add_shutdown_callback = lambda callback: None
        await call_then_leave(Support(open_recall()))
        assert await turns(open_recall()) == [
            ("assistant", "hello there"),
            ("user", "my number is seven"),
            ("assistant", "you said my number is seven"),
        ]
    reader = open_recall(rejoin_window=0.001)
    await anyio.sleep(0.05)
    async with reader.resume(ROOM, room_sid="RM_one") as call:
        assert call.briefing.fresh, "it was left, and that is long ago"


async def test_agents_4899_what_is_seeded_is_no_new_input(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Support):
        turned = 0

        async def on_user_turn_completed(
            self, turn_ctx: llm.ChatContext, new_message: llm.ChatMessage
        ) -> None:
            type(self).turned += 1

    with desk(monkeypatch, "RM_one"):
        await call_then_leave(Support(open_recall()))
    before = await turns(open_recall())
    with desk(monkeypatch, "RM_one"):
        agent = Counting(open_recall(seed_wait=5.0))
        line = Line(agent)
        heard: list[Any] = []
        line.session.on("user_input_transcribed", heard.append)
        async with line.open():
            await until(lambda: agent.told and line.heard)
            await until(lambda: line.session.agent_state == "listening")
            assert await agent.call.flush(2)
    assert (await turns(open_recall()))[: len(before)] == before
    assert len(await turns(open_recall())) == len(before) + 1
    assert (Counting.turned, heard) == (0, [])


# --- several people in the room -----------------------------------------------------------------


class Linked:
    """A session with LiveKit's own RoomIO on a room that is not real: it links who comes first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: Desk, line: Line) -> None:
        self.line = line
        self.room_io = RoomIO(line.session, here.room)  # type: ignore[arg-type]
        monkeypatch.setattr(AgentSession, "room_io", property(lambda session: self.room_io))
        self._opened = line.open()

    async def __aenter__(self) -> Line:
        for one in list(self.room_io.room.remote_participants.values()):
            self.room_io._on_participant_connected(one)
        first = self.room_io.linked_participant
        if first is not None:
            self.room_io.set_participant(first.identity)
        return await self._opened.__aenter__()

    async def __aexit__(self, *failure: Any) -> None:
        await self._opened.__aexit__(*failure)

    @property
    def who(self) -> str | None:
        there = self.room_io.linked_participant
        return there.identity if there else None


async def with_anna(open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anna, who calls by telephone, has been served by another worker."""
    with desk(monkeypatch, "RM_one", person("anna", "+4930123")) as here:
        async with Linked(monkeypatch, here, Line(Support(open_recall()))) as line:
            await greeted(line)
            await talk(line, "my number is seven")


async def test_who_calls_is_in_the_records(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_anna(open_recall, monkeypatch)
    [turn] = [turn for turn in await open_recall().turns(ROOM) if turn.role == "user"]
    assert turn.name == "+4930123"
    assert (await open_recall().read(ROOM)).caller == "+4930123"


@pytest.mark.over_http
async def test_of_several_people_the_recorded_caller_is_linked_again(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_anna(open_recall, monkeypatch)
    people = (person("supervisor"), person("anna", "+4930123"))
    with desk(monkeypatch, "RM_one", *people) as here:
        session = Linked(monkeypatch, here, Line(Support(open_recall())))
        async with session:
            await until(lambda: session.who == "anna")


async def test_a_recorded_caller_who_comes_later_is_linked_then(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_anna(open_recall, monkeypatch)
    with desk(monkeypatch, "RM_one", person("supervisor")) as here:
        session = Linked(monkeypatch, here, Line(Support(open_recall(seed_wait=5.0))))
        async with session as line:
            await until(lambda: line.heard)
            await anyio.sleep(0.1)
            assert session.who == "supervisor", "somebody is served, whoever it is"
            anna = person("anna again", "+4930123")
            here.room.remote_participants[anna.identity] = anna
            here.room.emit("participant_connected", anna)
            await until(lambda: session.who == "anna again")


@pytest.mark.parametrize("chosen", [True, False])
async def test_whom_the_application_links_stays_linked(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    await with_anna(open_recall, monkeypatch)
    people = (person("supervisor"), person("anna", "+4930123"))
    with desk(monkeypatch, "RM_one", *people) as here:
        session = Linked(monkeypatch, here, Line(Support(open_recall(seed_wait=5.0))))
        if chosen:
            session.room_io._options = SimpleNamespace(  # type: ignore[assignment]
                participant_identity="supervisor", participant_kinds=None
            )
        async with session as line:
            await until(lambda: line.heard)
            await anyio.sleep(0.2)
            assert session.who == ("supervisor" if chosen else "anna")


async def test_an_agent_is_no_caller(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_anna(open_recall, monkeypatch)
    other = Somebody("anna", AGENT)
    with desk(monkeypatch, "RM_one", person("supervisor"), other) as here:
        session = Linked(monkeypatch, here, Line(Support(open_recall(seed_wait=5.0))))
        async with session as line:
            await until(lambda: line.heard)
            await anyio.sleep(0.1)
            assert session.who == "supervisor"


async def test_a_standby_in_the_room_hears_the_recorded_caller(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, Orders(standby="joined")) as here:
        async with open_recall().resume(ROOM, room_sid=here.sid, caller="anna") as held:
            held.record_turn("user", "a table for four")
            await held.flush(2)
            agent = Support(open_recall())
            standing = asyncio.create_task(agent.stand_by(Line(agent).session))
            await until(lambda: agent.call.state is CallState.STANDBY)
            await held.aclose("handover")
            assert await asyncio.wait_for(standing, 5)
            assert agent._live is not None
            assert agent._live.standby is not None
            ear: Any = agent._live.standby.where.ear
            assert ear.preferred == "anna"
            await agent._live.withdraw()


async def test_a_session_without_a_room_has_nobody_to_link(open_recall: OpenRecall) -> None:
    agent = Support(open_recall())
    async with Line(agent).open() as line:
        await greeted(line)
        await talk(line, "one")
        assert await agent.call.flush(2)
    recall: Recall = open_recall()
    assert (await recall.read(ROOM)).caller is None
    assert {turn.name for turn in await recall.turns(ROOM)} == {None}


# --- a room that is closed and used again at once ------------------------------------------------


@pytest.mark.parametrize(
    ("caller", "waits"), [(None, False), ("anna", True)], ids=["not told by the job", "told"]
)
async def test_a_room_is_used_again_while_its_last_call_is_still_being_closed(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caller: str | None, waits: bool
) -> None:
    """The old worker takes some seconds to write that the call has ended. Who is taken for the
    same caller waits for that: it may yet be the same call."""
    with desk(monkeypatch, "RM_one", person("anna")) as here:
        async with Linked(monkeypatch, here, Line(Support(open_recall(), caller=caller))) as line:
            await greeted(line)
            await talk(line, "my number is seven")
            with desk(monkeypatch, "RM_two", person("anna")):
                agent = Support(open_recall(), caller=caller)
                if not waits:
                    assert await comes_back(agent) == ["fresh"]
                    return
                again = Line(agent)
                async with again.open():
                    await until(lambda: agent.call.state is CallState.STANDBY)
                    assert (agent.told, again.heard) == ([], False)
                    assert isinstance(line.agent, Support)
                    await line.agent.call.aclose("ended")
                    await until(lambda: agent.told and again.heard)
                assert agent.told == ["fresh"]


async def test_who_stands_by_in_a_room_of_its_own_begins_the_next_call(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk(monkeypatch, "RM_one", person("anna")) as here:
        line = Line(Support(open_recall(), caller="anna"))
        async with Linked(monkeypatch, here, line):
            await greeted(line)
            with desk(monkeypatch, "RM_two", person("anna")):
                agent = Support(open_recall(seed_wait=5.0), caller="anna")
                again = Line(agent)
                standing_by = asyncio.create_task(agent.stand_by(again.session))
                await until(lambda: agent._live and agent._live.standby)
                assert isinstance(line.agent, Support)
                await line.agent.call.aclose("ended")
                async with asyncio.timeout(10):
                    assert await standing_by
                async with again.open():
                    await until(lambda: agent.told)
                assert agent.told == ["fresh"]
