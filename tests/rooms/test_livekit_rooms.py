"""LiveKit's server API, asked of a real server, and of one that does not answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from livekit import api, rtc
from livekit.protocol.models import ParticipantInfo

from recall_livekit.errors import InvalidSettings, RoomsUnavailable
from recall_livekit.rooms import livekit_rooms
from recall_livekit.rooms.livekit_rooms import LiveKitRooms, Unanswered, Unsupported
from recall_livekit.rooms.orders import ALIVE, Orders, Pulse
from recall_livekit.rooms.protocol import Refused
from recall_livekit.testing.livekit_server import LiveKitServer

pytestmark = pytest.mark.anyio

SECRET = "s" * 32


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.livekit
async def test_a_real_server(tmp_path: Path) -> None:
    async with asyncio.timeout(60), LiveKitServer(tmp_path) as server:
        rooms = LiveKitRooms(server.url, server.key, server.secret)
        guest = rtc.Room()
        try:
            await guest.connect(server.url, server.token("a room", "a caller"))
            await who_is_there(rooms)
            await whoever_is_asked(rooms, guest)
            await dispatched(rooms)
            await rooms.evict("a room", "a caller")
            assert await rooms.members("a room") == []
            await rooms.evict("a room", "a caller")
            await rooms.evict("gone", "nobody")
        finally:
            await guest.disconnect()
            await rooms.aclose()


async def who_is_there(rooms: LiveKitRooms) -> None:
    [room] = await rooms.rooms()
    assert room.name == "a room"
    assert room.sid.startswith("RM_")
    assert abs(room.created_at - time.time()) < 60
    assert await rooms.rooms(["gone"]) == []
    [member] = await rooms.members("a room")
    assert (member.identity, member.kind, member.standby) == ("a caller", "caller", "")
    assert await rooms.members("gone") == []
    assert await rooms.dispatches("gone") == []


async def whoever_is_asked(rooms: LiveKitRooms, guest: rtc.Room) -> None:
    asked = ("a room", "a caller")
    assert await rooms.ask(*asked, seconds=0.25) == Pulse(state="")  # it has no such method yet
    began = time.monotonic()
    assert await rooms.ask("a room", "gone", seconds=0.05) is None
    assert time.monotonic() - began < livekit_rooms.PATIENCE, "LiveKit is silent for 3 s"
    assert await rooms.ask("gone", "gone", seconds=0.05) is None

    async def alive(data: rtc.RpcInvocationData) -> str:
        return Pulse(state="holding", epoch=3).model_dump_json()

    async def frozen(data: rtc.RpcInvocationData) -> str:
        await asyncio.sleep(2)
        return ""

    me = guest.local_participant
    me.register_rpc_method(ALIVE, alive)
    assert await rooms.ask(*asked, seconds=0.25) == Pulse(state="holding", epoch=3)
    me.register_rpc_method(ALIVE, frozen)
    assert await rooms.ask(*asked, seconds=0.25) is None
    with pytest.raises(Unanswered):
        await rooms.perform(*asked, ALIVE, seconds=0.25)
    with pytest.raises(Unsupported):
        await rooms.perform(*asked, "no such method", seconds=0.25)


async def dispatched(rooms: LiveKitRooms) -> None:
    [room] = await rooms.rooms()
    orders = Orders(standby="joined")
    one = await rooms.dispatch(room, "support", metadata="their own", orders=orders)
    newest = (await rooms.dispatches("a room"))[-1]
    assert (newest.id, newest.agent_name, newest.metadata) == (one, "support", "their own")
    assert newest.orders == orders
    await rooms.withdraw("a room", one)
    assert one not in [known.id for known in await rooms.dispatches("a room")]
    await rooms.withdraw("a room", one)
    await rooms.withdraw("gone", one)


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """A server that takes every request and says nothing."""

    async def say_nothing(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", say_nothing)
    async with TestServer(app) as server:
        yield f"ws://127.0.0.1:{server.port}"


async def test_the_silence_of_the_server_is_not_the_agents(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every agent would be taken for dead when LiveKit's server hangs."""
    monkeypatch.setattr(livekit_rooms, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(livekit_rooms, "PATIENCE", 0.2)
    rooms = LiveKitRooms(silent, "key", SECRET)
    try:
        for asking in (
            lambda: rooms.ask("room", "agent", seconds=0.05),
            rooms.rooms,
            lambda: rooms.members("room"),
            lambda: rooms.dispatches("room"),
            lambda: rooms.evict("room", "agent"),
        ):
            with pytest.raises(RoomsUnavailable):
                await asking()
    finally:
        await rooms.aclose()


async def test_no_server() -> None:
    nobody = LiveKitRooms("ws://127.0.0.1:1", "key", SECRET)
    try:
        with pytest.raises(RoomsUnavailable, match="cannot be reached"):
            await nobody.rooms()
    finally:
        await nobody.aclose()


@pytest.mark.livekit
async def test_a_wrong_secret_is_said(tmp_path: Path) -> None:
    async with asyncio.timeout(60), LiveKitServer(tmp_path) as server:
        stranger = LiveKitRooms(server.url, server.key, SECRET)
        try:
            with pytest.raises(RoomsUnavailable, match="refuses the key"):
                await stranger.rooms()
        finally:
            await stranger.aclose()


@pytest.mark.parametrize("missing", ["LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"])
async def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.setenv(name, "ws://127.0.0.1:1")
    monkeypatch.delenv(missing)
    with pytest.raises(InvalidSettings, match=missing):
        LiveKitRooms()


@pytest.mark.parametrize(
    ("kind", "as_whom"),
    [
        (ParticipantInfo.Kind.STANDARD, "caller"),
        (ParticipantInfo.Kind.SIP, "caller"),
        (ParticipantInfo.Kind.CONNECTOR, "caller"),
        (ParticipantInfo.Kind.AGENT, "agent"),
        (ParticipantInfo.Kind.EGRESS, "other"),
    ],
)
async def test_who_is_a_caller_and_who_an_agent(kind: ParticipantInfo.Kind, as_whom: str) -> None:
    info = ParticipantInfo(identity="x", kind=kind, attributes={"lk.agent.name": "support"})
    member = livekit_rooms._member_of(info)
    assert (member.identity, member.kind, member.agent_name) == ("x", as_whom, "support")


@pytest.mark.parametrize(
    ("code", "status", "alone"),
    [
        ("internal", 500, True),
        ("failed_precondition", 412, True),
        ("invalid_argument", 400, True),
        ("unavailable", 503, False),
        ("unknown", 502, False),  # the page of a proxy
        ("unauthenticated", 401, False),
    ],
)
async def test_a_refusal_of_one_request_is_told_from_a_server_in_trouble(
    code: str, status: int, alone: bool
) -> None:
    error = livekit_rooms._meaning(api.TwirpError(code, "no", status=status))
    assert isinstance(error, RoomsUnavailable)
    assert isinstance(error, Refused) is alone


@pytest.mark.parametrize("said", ["twirp error unknown: stream closed", "transport failure"])
def test_somebody_whose_connection_is_lost_does_not_answer(said: str) -> None:
    error = api.TwirpError(api.TwirpErrorCode.INTERNAL, said, status=500)
    assert isinstance(livekit_rooms._meaning(error), Unanswered)
