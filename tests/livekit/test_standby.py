"""A standby waits without a session, and is the agent of the call the moment it has the call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest
from livekit import rtc
from livekit.agents import AutoSubscribe

from recall_livekit import CallState, Recall
from recall_livekit.call import Call
from recall_livekit.call_ids import standby_call_id
from recall_livekit.engine.entries import ReleaseEntry
from recall_livekit.engine.liveness import Liveness
from recall_livekit.livekit.sound import echo
from recall_livekit.livekit.succession import whereabouts
from recall_livekit.rooms.orders import STANDBY, Orders
from recall_livekit.testing.voices import ScriptedSTT, tones

from ..call.freezer import Freezer
from ..conftest import OpenRecall, transport_of
from .desk import Desk, Microphone, a_desk
from .line import Line, until
from .test_agent import ROOM, Support, earlier_call

pytestmark = pytest.mark.anyio
FOLLOWING = Orders(standby="following")
JOINED = Orders(standby="joined")
KINDS = pytest.mark.parametrize("orders", [FOLLOWING, JOINED], ids=["following", "joined"])


@asynccontextmanager
async def holder(open_recall: OpenRecall, desk: Desk) -> AsyncIterator[Call]:
    """Another worker's live call in the desk's room."""
    async with open_recall().resume(ROOM, room_sid=desk.sid) as call:
        call.record_turn("user", "a table for four", at=time.time() - 60)
        yield call


@asynccontextmanager
async def waiting(agent: Support, line: Line) -> AsyncIterator[asyncio.Task[bool]]:
    """The entrypoint, up to `stand_by`."""
    standing = asyncio.create_task(agent.stand_by(line.session))
    try:
        yield standing
    finally:
        standing.cancel()
        await asyncio.wait([standing])
        await agent._live.withdraw()  # type: ignore[union-attr]


async def chain_length(recall: Recall, call: str = ROOM) -> int:
    return len(await recall.entries(call, 0, 256))


@KINDS
@pytest.mark.over_http
async def test_it_waits_without_a_session_and_goes_on_with_the_newest_records(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, orders: Orders
) -> None:
    with a_desk(monkeypatch, orders) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            line = Line(agent)
            async with waiting(agent, line) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                held.record_turn("user", "no, for five")
                await held.flush(2)
                await asyncio.sleep(0.1)
                assert not standing.done()
                assert bool(desk.connects) is (orders.standby == "joined")
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 2)
                assert agent.call.state is CallState.HOLDING
                async with line.open():
                    await until(lambda: "you said no, for five" in line.subtitles.text)
                assert agent.told == ["resume"]
        assert not desk.shutdown.called


@KINDS
@pytest.mark.over_http
@pytest.mark.parametrize("outcome", ["ended", "left"])
async def test_it_ends_with_the_call_and_writes_nothing(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, orders: Orders, outcome: Any
) -> None:
    with a_desk(monkeypatch, orders) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                desk.server.caller = outcome == "ended"
                if outcome == "left":
                    del desk.room.remote_participants["anna"]
                await held.aclose(outcome)
                assert not await asyncio.wait_for(standing, 3)
                assert agent.call.state is CallState.CLOSED
        desk.shutdown.assert_called_once()
        reader = open_recall()
        last = (await reader.entries(ROOM, 0, 256))[-1]
        assert isinstance(last, ReleaseEntry)
        assert last.outcome == outcome
        assert not desk.room.isconnected()


@KINDS
async def test_dispatched_for_a_call_that_has_ended_it_opens_no_new_one(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, orders: Orders
) -> None:
    with a_desk(monkeypatch, orders) as desk:
        async with holder(open_recall, desk) as held:
            await held.aclose("ended")
        before = await chain_length(open_recall())
        agent = Support(open_recall())
        assert not await asyncio.wait_for(agent.stand_by(Line(agent).session), 3)
        assert await chain_length(open_recall()) == before
        assert agent.told == []


@pytest.mark.parametrize("gone", ["room", "dispatch", "caller"])
async def test_one_that_did_not_join_never_makes_a_room_that_is_gone_again(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    with a_desk(monkeypatch, FOLLOWING) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                await until(lambda: desk.server.asked)
                there = desk.server.dispatch
                desk.server.dispatch = {"room": None, "dispatch": "AD_other"}.get(gone, there)
                desk.server.caller = gone != "caller"
                await held.aclose("handover")
                assert not await asyncio.wait_for(standing, 3)
        assert desk.connects == []
        assert (await open_recall().entries(ROOM, 0, 256))[-1].kind == "release"
        desk.shutdown.assert_called_once()


async def test_one_that_did_not_join_notices_that_its_room_is_gone(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "LOOK_SECONDS", 0.05)
    with a_desk(monkeypatch, FOLLOWING) as desk:
        async with holder(open_recall, desk):
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                desk.server.away = True
                await asyncio.sleep(0.15)
                assert not standing.done(), "LiveKit's own silence means nothing"
                desk.server.away, desk.server.dispatch = False, None
                assert not await asyncio.wait_for(standing, 3)


async def test_livekit_away_it_acts_when_it_is_back(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whereabouts, "RETRY_SECONDS", 0.02)
    with a_desk(monkeypatch, FOLLOWING) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                desk.server.away = True
                await held.aclose("handover")
                await asyncio.sleep(0.2)
                assert not standing.done()
                desk.server.away = False
                assert await asyncio.wait_for(standing, 3)


async def test_one_that_did_not_join_ends_before_its_token_does(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert 0 < whereabouts.TOKEN_SECONDS < 3600
    monkeypatch.setattr(whereabouts.Outside, "seconds", 0.2)
    caplog.set_level("INFO", "recall_livekit")
    with a_desk(monkeypatch, FOLLOWING) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                assert not await asyncio.wait_for(standing, 3)
            assert held.state is CallState.HOLDING
        desk.shutdown.assert_called_once()
    assert "as long as its token lets it join" in caplog.text


@pytest.mark.over_http
async def test_a_call_has_one_standby_and_a_watcher_can_see_it(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = transport_of(open_recall())
    post = standby_call_id(ROOM)
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await wait_for(lambda: watcher.read(post), Liveness.LIVE)
                with a_desk(monkeypatch, FOLLOWING) as other_desk:
                    other = Support(open_recall())
                    assert not await asyncio.wait_for(other.stand_by(Line(other).session), 3)
                    other_desk.shutdown.assert_called_once()
                assert not standing.done()
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)
                await wait_for(lambda: watcher.read(post), Liveness.FREE)
        assert held.state is CallState.CLOSED


async def wait_for(read: Any, liveness: Liveness) -> None:
    async with asyncio.timeout(3):
        while (await read()).liveness is not liveness:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_successor_at_a_deploy_does_not_take_the_standbys_place(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, Orders(standby="joined", handover=True)) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                await asyncio.sleep(0.1)
                assert await chain_length(open_recall(), standby_call_id(ROOM)) == 0
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)


# --- in the room ------------------------------------------------------------------------------


async def test_in_the_room_it_is_told_from_the_agent_until_it_is_the_agent(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            me = desk.room.local_participant
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: me.said)
                assert desk.connects == [{"auto_subscribe": AutoSubscribe.SUBSCRIBE_NONE}]
                assert me.attributes == {STANDBY: "joined", "lk.publish_on_behalf": "agent"}
                anna = desk.room.remote_participants["anna"].track_publications[0]
                assert not anna.subscribed, "the ear of this test subscribes to nothing"
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)
                await until(lambda: len(me.said) == 2)
                assert set(me.attributes.values()) == {""}
                assert anna.subscribed


async def test_in_the_room_it_leaves_when_the_room_ends(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: desk.room.local_participant.said)
                desk.room.close()
                assert not await asyncio.wait_for(standing, 3)
            assert held.state is CallState.HOLDING


async def test_a_room_that_cannot_be_joined_ends_it(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, JOINED) as desk:

        async def refuse(**_: object) -> None:
            raise rtc.ConnectError("no")

        desk.job.connect = refuse
        async with holder(open_recall, desk):
            agent = Support(open_recall())
            assert not await asyncio.wait_for(agent.stand_by(Line(agent).session), 3)
        desk.shutdown.assert_called_once()


@pytest.mark.parametrize("recorded", [False, True])
async def test_words_said_into_the_gap_are_heard_once(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """`recorded`: the holder has heard them, and they are in the records as a turn."""
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            line = Line(agent)
            line.stt.vocabulary = ("seven", "four", "nine")
            async with waiting(agent, line) as standing:
                await until(lambda: desk.room.local_participant.said)
                held.record_turn("user", "earlier", at=time.time() - 5)
                ring = agent._live.standby.where.ear.ring  # type: ignore[union-attr]
                for at, frame in spoken("seven four", time.time()):
                    ring.add(frame, at)
                if recorded:
                    held.record_turn("user", "seven four", at=time.time() + 0.01)
                await held.flush(2)
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)
                line.session.input.audio = microphone = Microphone()
                async with line.open():
                    await microphone.say("nine")
                    await until(lambda: "nine" in users(line)[-1])
                    assert await agent.call.flush(2)
        words = [turn.content for turn in await open_recall().turns(ROOM) if turn.role == "user"]
        assert " ".join(words) == "a table for four earlier seven four nine"


def users(line: Line) -> list[str]:
    return [m.text_content or "" for m in line.session.history.messages() if m.role == "user"]


def spoken(text: str, until_: float) -> list[tuple[float, rtc.AudioFrame]]:
    frames = list(tones(text))
    return [(until_ - 0.02 * (len(frames) - 1 - n), frame) for n, frame in enumerate(frames)]


# --- who was not sent as a standby ------------------------------------------------------------


@pytest.mark.over_http
async def test_an_agent_that_has_the_call_to_itself_starts_at_once(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch) as desk:
        agent = Support(open_recall())
        async with waiting(agent, Line(agent)) as standing:
            assert await asyncio.wait_for(standing, 1)
        assert desk.connects == []


async def test_a_second_agent_by_mistake_waits_in_the_room_without_a_session(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            line = Line(agent)
            async with waiting(agent, line) as standing:
                await until(lambda: desk.room.local_participant.said)
                assert desk.room.local_participant.attributes[STANDBY] == "joined"
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)
                async with line.open():
                    await until(lambda: line.heard)


async def test_a_second_agent_by_mistake_leaves_if_it_is_to(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall(), if_held="leave")
            async with waiting(agent, Line(agent)) as standing:
                assert not await asyncio.wait_for(standing, 3)
            assert held.state is CallState.HOLDING
        assert desk.connects == []
        await until(lambda: desk.shutdown.called)


async def test_records_that_do_not_answer_are_waited_for_once(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    freezer = Freezer(timeout=5.0, frozen=True)
    with a_desk(monkeypatch):
        agent = Support(open_recall(faults=freezer, seed_wait=1.0, flush_wait=0.1))
        line = Line(agent)
        began = time.monotonic()
        assert await agent.stand_by(line.session)
        async with line.open():
            await until(lambda: agent.told)
            took = time.monotonic() - began
            freezer.thaw()
        assert 1.0 <= took < 1.9


async def test_outside_of_a_job_there_is_nothing_to_wait_for(open_recall: OpenRecall) -> None:
    async with open_recall().resume(ROOM):
        agent = Support(open_recall())
        line = Line(agent)
        assert await asyncio.wait_for(agent.stand_by(line.session), 1)
        async with line.open():
            await until(lambda: agent.call.state is CallState.STANDBY)
            assert not line.heard


async def test_a_standby_that_starts_a_session_all_the_same_is_told_what_to_write(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            line = Line(agent)
            async with line.open():
                post = standby_call_id(ROOM)
                watcher = transport_of(open_recall())
                await wait_for(lambda: watcher.read(post), Liveness.LIVE)
                assert not line.heard
                await held.aclose("handover")
                await until(lambda: line.heard)
                await wait_for(lambda: watcher.read(post), Liveness.FREE)
    assert caplog.text.count("if await agent.stand_by(session):") == 1


# --- the models -------------------------------------------------------------------------------


async def test_its_models_are_connected_while_it_waits(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OwnSTT(ScriptedSTT):
        prewarm = Mock(side_effect=RuntimeError("no network"))

    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk):
            agent = Support(open_recall(), stt=OwnSTT())
            line = Line(agent)
            line.session.tts.prewarm = Mock()  # type: ignore[union-attr,method-assign]
            line.stt.prewarm = Mock()  # type: ignore[method-assign]
            async with waiting(agent, line):
                await until(lambda: desk.room.local_participant.said)
                line.session.tts.prewarm.assert_called_once_with()  # type: ignore[union-attr]
                OwnSTT.prewarm.assert_called_once_with()
                line.stt.prewarm.assert_not_called()


# --- AEC warm-up ------------------------------------------------------------------------------


def warm_up_left(line: Line) -> float:
    return float(line.session._aec_warmup_remaining)


def with_warm_up(agent: Support, **options: Any) -> Line:
    """A line whose session has LiveKit's own AEC warm-up."""
    line = Line(agent)
    line.session._aec_warmup_duration_explicit = bool(options)
    line.session._aec_warmup_remaining = options.get("seconds", 3.0)
    return line


def linked() -> Any:
    return Mock(kind=rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD, attributes={})


async def test_a_resumed_caller_is_heard_while_the_agent_speaks(open_recall: OpenRecall) -> None:
    await earlier_call(open_recall)
    line = with_warm_up(Support(open_recall()))
    async with line.open():
        line.session._on_room_io_participant_linked(linked())
        await until(lambda: line.session.agent_state == "speaking")
        assert warm_up_left(line) == 0
        assert line.session._aec_warmup_timer is None


async def test_a_resumed_caller_who_is_linked_late_is_heard_too(open_recall: OpenRecall) -> None:
    await earlier_call(open_recall)
    line = with_warm_up(Support(open_recall()))
    async with line.open():
        await until(lambda: line.heard)
        line.session._on_room_io_participant_linked(linked())
        assert warm_up_left(line) == 0


async def test_a_warm_up_that_the_application_chose_stays(open_recall: OpenRecall) -> None:
    await earlier_call(open_recall)
    line = with_warm_up(Support(open_recall()), seconds=1.5)
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        assert warm_up_left(line) == 1.5


async def test_a_fresh_call_has_its_warm_up(open_recall: OpenRecall) -> None:
    line = with_warm_up(Support(open_recall()))
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        assert warm_up_left(line) == 3.0


async def test_without_livekits_private_state_there_is_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    echo._warn_once.cache_clear()
    for _ in range(2):
        echo.end_warm_up(cast("Any", object()))
    assert caplog.text.count("AgentSession(aec_warmup_duration=0)") == 1


# --- on its way in --------------------------------------------------------------------------------


async def test_one_outside_joins_while_the_call_is_taken(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining takes the longest: nobody waits for the store first."""
    joined_as: list[CallState] = []
    with a_desk(monkeypatch, FOLLOWING) as desk:
        connect = desk.job.connect

        async def connect_now(**options: Any) -> None:
            joined_as.append(agent.call.state)
            await connect(**options)

        desk.job.connect = connect_now
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 2)
                assert joined_as == [CallState.STANDBY]
                assert desk.room.local_participant.said == []


async def test_one_that_came_in_and_was_beaten_says_that_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whereabouts, "BEATEN_SECONDS", 0.05)
    with a_desk(monkeypatch, FOLLOWING) as desk:
        outside = whereabouts.Outside(desk.job)
        outside.approach()
        attributes = desk.room.local_participant.attributes
        await until(lambda: attributes.get(STANDBY) == "following")
        outside.approach()  # the call is free once more
        await outside.act()
        assert attributes[STANDBY] == ""
        assert len(desk.connects) == 1


async def test_one_on_its_way_in_that_is_not_needed_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with a_desk(monkeypatch, FOLLOWING) as desk:
        outside = whereabouts.Outside(desk.job)
        outside.approach()
        await until(desk.room.isconnected)
        await outside.end()
        assert not desk.room.isconnected()


async def test_livekit_away_for_long_another_standby_is_to_come(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(whereabouts, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(whereabouts, "RETRY_SECONDS", 0.05)
    with a_desk(monkeypatch, FOLLOWING) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            async with waiting(agent, Line(agent)) as standing:
                await until(lambda: agent.call.state is CallState.STANDBY)
                desk.server.away = True
                await held.aclose("handover")
                assert not await asyncio.wait_for(standing, 3)
        desk.shutdown.assert_called_once()
    assert "its room cannot be asked for" in caplog.text


async def test_an_ear_that_no_session_uses_is_closed(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_desk(monkeypatch, JOINED) as desk:
        async with holder(open_recall, desk) as held:
            agent = Support(open_recall())
            line = Line(agent)
            async with waiting(agent, line) as standing:
                await until(lambda: desk.room.local_participant.said)
                ear = cast("Any", agent._live.standby.where.ear)  # type: ignore[union-attr]
                await held.aclose("handover")
                assert await asyncio.wait_for(standing, 3)
                line.session.input.audio = None
                async with line.open():
                    await until(lambda: ear.closed)
