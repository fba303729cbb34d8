"""A job in this process: a room that is not real, and what a test does to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import Mock

import pytest
from livekit import rtc
from livekit.agents.testing import fake_job_context
from livekit.agents.voice import io

from recall_livekit.errors import RoomsUnavailable
from recall_livekit.livekit.sound.ring import Ring
from recall_livekit.livekit.succession import whereabouts
from recall_livekit.rooms.livekit_rooms import Dispatched, Member
from recall_livekit.rooms.orders import ORDERS, Orders
from recall_livekit.testing.voices import tones

__all__ = [
    "AGENT",
    "CALLER",
    "Desk",
    "Ear",
    "FakeRoom",
    "Microphone",
    "Publication",
    "Somebody",
    "a_desk",
    "a_job",
]

CALLER = rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD
AGENT = rtc.ParticipantKind.PARTICIPANT_KIND_AGENT
NAME = "fake-room"
QUIET = rtc.AudioFrame(bytes(2 * 1200), 24_000, 1, 1200)


class Publication:
    def __init__(self, source: int = rtc.TrackSource.SOURCE_MICROPHONE) -> None:
        self.source = source
        self.track: Any = None
        self.subscribed = False

    def set_subscribed(self, subscribed: bool) -> None:
        self.subscribed = subscribed


class Somebody:
    """A participant."""

    def __init__(self, identity: str, kind: int, *publications: Publication) -> None:
        self.identity = identity
        self.kind = kind
        self.attributes: dict[str, str] = {}
        self.track_publications = dict(enumerate(publications))


class LocalParticipant:
    def __init__(self) -> None:
        self.identity = "me"
        self.attributes: dict[str, str] = {}
        self.said: list[dict[str, str]] = []
        self.register_rpc_method = Mock()

    async def set_attributes(self, attributes: dict[str, str]) -> None:
        self.said.append(attributes)
        self.attributes |= attributes


class FakeRoom(rtc.EventEmitter[str]):
    """A room with its participants, connected once the job is."""

    def __init__(self, *participants: Somebody) -> None:
        super().__init__()
        self.name = NAME
        self.connection_state = rtc.ConnectionState.CONN_DISCONNECTED
        self.local_participant = LocalParticipant()
        self.remote_participants = {one.identity: one for one in participants}

    def isconnected(self) -> bool:
        return self.connection_state == rtc.ConnectionState.CONN_CONNECTED

    async def disconnect(self) -> None:
        self.connection_state = rtc.ConnectionState.CONN_DISCONNECTED

    def close(self) -> None:
        """The room ends."""
        self.connection_state = rtc.ConnectionState.CONN_DISCONNECTED
        self.emit("disconnected", rtc.DisconnectReason.ROOM_DELETED)


class Server:
    """LiveKit's server API, as far as a standby asks it."""

    def __init__(self, dispatch: str) -> None:
        self.dispatch: str | None = dispatch
        """The one dispatch of the room; None if the room is gone."""
        self.caller = True
        self.away = False
        self.asked = 0

    async def dispatches(self, room: str) -> list[Dispatched]:
        self._answer()
        return [Dispatched(self.dispatch, "support", "")] if self.dispatch else []

    async def members(self, room: str) -> list[Member]:
        self._answer()
        agent = Member("agent", "agent", 0.0, agent_name="support")
        return [agent, Member("anna", "caller", 0.0)] if self.caller else [agent]

    async def aclose(self) -> None:
        pass

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise RoomsUnavailable("away")


class Microphone(io.AudioInput):
    """A session's own input, into which a test puts frames, or speaks; None ends it."""

    def __init__(self) -> None:
        super().__init__(label="microphone")
        self.frames: asyncio.Queue[rtc.AudioFrame | None] = asyncio.Queue()

    async def __anext__(self) -> rtc.AudioFrame:
        found = await self.frames.get()
        if found is None:
            raise StopAsyncIteration
        return found

    async def say(self, text: str) -> None:
        for frame in (*tones(text), *[QUIET] * 10):
            self.frames.put_nowait(frame)
            await asyncio.sleep(frame.duration)


class Ear:
    """An ear whose ring a test fills."""

    def __init__(self, room: object = None, seconds: float = 10.0) -> None:
        self.ring = Ring(seconds)
        self.identity: str | None = "anna"
        self.closed = False
        self.preferred: str | None = None

    def prefer(self, caller: str | None) -> None:
        self.preferred = caller

    async def aclose(self) -> None:
        self.closed = True


class Desk:
    """One job of one worker."""

    def __init__(self, job: Any, room: FakeRoom, server: Server) -> None:
        self.job, self.room, self.server = job, room, server
        self.sid: str = job.job.room.sid
        self.shutdown = job.shutdown = Mock()
        self.connects: list[dict[str, Any]] = []
        job.connect = self._connect

    async def _connect(self, **options: Any) -> None:
        self.connects.append(options)
        self.room.connection_state = rtc.ConnectionState.CONN_CONNECTED
        self.room.emit("connection_state_changed", self.room.connection_state)


@contextmanager
def a_job(room: FakeRoom | None = None, *, metadata: str = "") -> Iterator[Any]:
    """A job that LiveKit fakes, and nothing of it afterwards."""
    with fake_job_context(room=cast("Any", room), job_metadata=metadata) as job:
        try:
            yield job
        finally:
            job._tempdir.cleanup()


@contextmanager
def a_desk(
    monkeypatch: pytest.MonkeyPatch, orders: Orders | None = None, sid: str = "RM_one"
) -> Iterator[Desk]:
    """A job dispatched with these orders; `anna` and an agent are in its room."""
    room = FakeRoom(Somebody("agent", AGENT), Somebody("anna", CALLER, Publication()))
    server = Server(f"AD_{sid}")
    monkeypatch.setattr(whereabouts, "LiveKitRooms", lambda: server)
    monkeypatch.setattr(whereabouts, "CallerEar", Ear)
    with a_job(room) as job:
        job.job.room.sid, job.job.dispatch_id = sid, server.dispatch
        if orders is not None:
            job.job.attributes[ORDERS] = orders.model_dump_json(exclude_defaults=True)
        yield Desk(job, room, server)
