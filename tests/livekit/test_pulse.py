"""Who asks an agent whether it lives is answered at once; and whom an agent asks itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from recall_livekit import CallState
from recall_livekit.errors import RoomsUnavailable
from recall_livekit.livekit.succession.pulse import Others, answer_rpcs
from recall_livekit.rooms.livekit_rooms import Member
from recall_livekit.rooms.orders import ALIVE, HAND_OVER, Orders, Pulse

from ..conftest import OpenRecall
from .desk import a_desk, a_job
from .line import Line, until
from .test_agent import Support

pytestmark = pytest.mark.anyio


class Room:
    """What `answer_rpcs` needs of a room, connected when the test says so."""

    def __init__(self, *, connected: bool = False) -> None:
        self.connected = connected
        self.methods: dict[str, Callable[[Any], Any]] = {}
        self.listeners: list[Callable[..., None]] = []

    def isconnected(self) -> bool:
        return self.connected

    def on(self, event: str, listener: Callable[..., None]) -> None:
        assert event == "connection_state_changed"
        self.listeners.append(listener)

    def off(self, event: str, listener: Callable[..., None]) -> None:
        self.listeners.remove(listener)

    def connect(self) -> None:
        self.connected = True
        for listener in list(self.listeners):
            listener(1)

    @property
    def local_participant(self) -> Any:
        if not self.connected:
            raise RuntimeError("cannot access local participant before connecting")
        return SimpleNamespace(register_rpc_method=self.methods.__setitem__)

    async def ask(self, method: str) -> str:
        return str(await self.methods[method](None))


def alive() -> Pulse:
    return Pulse(state="holding", epoch=3)


async def test_it_answers_as_soon_as_the_room_is_connected() -> None:
    room: Any = Room()
    answer_rpcs(room, alive)
    assert room.methods == {}
    room.connect()
    assert Pulse.model_validate_json(await room.ask(ALIVE)) == alive()
    assert set(room.methods) == {ALIVE}
    assert room.listeners == [], "once is enough"


async def test_in_a_room_that_is_connected_already_it_answers_at_once() -> None:
    room: Any = Room(connected=True)

    async def hand_over() -> str:
        return "kept"

    answer_rpcs(room, alive, hand_over)
    assert await room.ask(HAND_OVER) == "kept"


async def test_a_pulse_that_fails_says_that_it_lives() -> None:
    room: Any = Room(connected=True)

    def broken() -> Pulse:
        raise ZeroDivisionError

    answer_rpcs(room, broken)
    assert json.loads(await room.ask(ALIVE))["state"] == ""


async def test_a_room_without_rpc_ends_no_call(caplog: pytest.LogCaptureFixture) -> None:
    room: Any = SimpleNamespace(on=lambda *_: None, off=lambda *_: None, isconnected=lambda: True)
    answer_rpcs(room, alive)
    assert "the call goes on" in caplog.text


async def test_an_agent_tells_how_it_stands_from_its_construction_on(
    open_recall: OpenRecall,
) -> None:
    agent = Support(open_recall())
    assert agent._live is not None
    assert agent._live._switchboard.pulse() == Pulse(state="reading")
    async with Line(agent).open() as line:
        await until(lambda: line.heard and agent.call.state is CallState.HOLDING)
        assert agent._live._switchboard.pulse() == Pulse(state="holding", epoch=1)
        second = Support(open_recall())
        assert second._live is not None
        second._live._switchboard._orders = Orders(standby="joined")
        await until(lambda: second.call.state is CallState.STANDBY)
        assert second._live._switchboard.pulse() == Pulse(
            state="standby", epoch=1, standby="joined"
        )
        await line.session.aclose()
        await until(lambda: second.call.state is CallState.HOLDING)
        assert second._live._switchboard.pulse() == Pulse(state="holding", epoch=2)
        assert agent._live._switchboard.pulse().state == "closed"
        await second.call.aclose()


async def test_agents_of_one_job_are_one_worker_however_early_they_are_made(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are made before the session; the other one waits for a handoff. It must not take the
    call from the first, nor say that it stands by."""
    with a_desk(monkeypatch) as desk:
        first, other = Support(open_recall()), Support(open_recall())
        async with Line(first).open() as line:
            await desk.job.connect()
            await until(lambda: line.heard and first.call.state is CallState.HOLDING)
            assert other.call is first.call
            registered = desk.room.local_participant.register_rpc_method.call_args_list
            methods = {call.args[0]: call.args[1] for call in registered}
            pulse = Pulse.model_validate_json(await methods[ALIVE](None))
            assert pulse == Pulse(state="holding", epoch=1)


# --- the others in the room -----------------------------------------------------------------------


class Server:
    """Stands for `LiveKitRooms`: who is in the room, and what each says."""

    def __init__(self, *members: Member, **says: Pulse | Exception | None) -> None:
        self._members = list(members)
        self._says = says
        self.asked: list[str] = []

    async def members(self, room: str) -> list[Member]:
        if not self._members:
            raise RoomsUnavailable("it is down")
        return self._members

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        self.asked.append(identity)
        says = self._says[identity]
        if says is None:
            await asyncio.sleep(seconds)
        if isinstance(says, Exception):
            raise says
        return says


ME = Member("me", "agent", 20.0, "support")
OLDER = Member("other", "agent", 10.0, "support")
YOUNGER = Member("other", "agent", 30.0, "support")
CALLER = Member("anna", "caller", 5.0)


def others(*members: Member, **says: Pulse | Exception | None) -> tuple[Others, Server]:
    asker, server = Others("room", "me", "support"), Server(*members, **says)
    asker._rooms = server  # type: ignore[assignment]
    return asker, server


@pytest.mark.parametrize(
    ("other", "says", "live"),
    [
        (OLDER, Pulse(state="holding", epoch=1), True),
        (OLDER, Pulse(state="standby"), False),
        (OLDER, Pulse(state="read_only"), False),
        (OLDER, Pulse(state="closed"), False),
        (OLDER, None, False),
        (OLDER, Pulse(state="acquiring"), True),
        (YOUNGER, Pulse(state="acquiring"), False),
        (YOUNGER, Pulse(state="reading"), False),
        (YOUNGER, Pulse(state="holding"), True),
        (OLDER, Pulse(state=""), True),
        (Member("other", "agent", 10.0, "note taker"), Pulse(state=""), False),
        (Member("other", "agent", 10.0, "note taker"), Pulse(state="holding"), True),
        (Member("other", "agent", 10.0, "support", "joined"), Pulse(state="holding"), False),
        (Member("other", "agent", 10.0, None), Pulse(state=""), False),
        (Member("other", "other", 10.0, "support"), Pulse(state=""), False),
    ],
)
async def test_who_counts_as_having_the_call(other: Member, says: Pulse | None, live: bool) -> None:
    asker, _ = others(CALLER, ME, other, other=says)
    assert await asker.live() is live


async def test_alone_it_asks_nobody_and_the_callers_never() -> None:
    asker, server = others(CALLER, ME)
    assert not await asker.live()
    assert server.asked == []


async def test_before_it_has_joined_everybody_is_older() -> None:
    asker, _ = others(CALLER, YOUNGER, other=Pulse(state="reading"))
    assert await asker.live()


async def test_livekits_own_silence_is_no_answer() -> None:
    asker, _ = others()
    with pytest.raises(RoomsUnavailable):
        await asker.live()
    asker, _ = others(ME, OLDER, other=RoomsUnavailable("it is down"))
    with pytest.raises(RoomsUnavailable):
        await asker.live()


async def test_one_that_lives_is_enough_and_the_dead_are_asked_at_once() -> None:
    dead = Member("dead", "agent", 1.0, "support")
    asker, server = others(ME, dead, OLDER, dead=None, other=Pulse(state="holding"))
    with anyio.fail_after(0.35):
        assert await asker.live()
    assert sorted(server.asked) == ["dead", "other"]


async def test_without_a_key_to_livekit_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Others.of(None) is None
    with a_job() as job:
        assert Others.of(job) is None, "a job without a server"
        monkeypatch.setattr(job, "is_fake_job", lambda: False)
        monkeypatch.delenv("LIVEKIT_API_KEY", raising=False)
        assert Others.of(job) is None
        for name in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
            monkeypatch.setenv(name, "ws://127.0.0.1:1")
        assert Others.of(job) is None, "a token that cannot be read"
        monkeypatch.setattr(type(job), "local_participant_identity", "me")
        assert Others.of(job) is not None
