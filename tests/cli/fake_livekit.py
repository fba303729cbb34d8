"""A LiveKit server as far as `watch` and `doctor` see it, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web
from livekit import api
from livekit.protocol.agent_dispatch import (
    AgentDispatch,
    CreateAgentDispatchRequest,
    ListAgentDispatchResponse,
)
from livekit.protocol.models import ParticipantInfo, Room
from livekit.protocol.room import (
    ListParticipantsRequest,
    ListParticipantsResponse,
    ListRoomsRequest,
    ListRoomsResponse,
)

from ..watcher.hooks import KEY, SECRET


class FakeLiveKit:
    """Has the rooms in `rooms` with a caller in each, and notes who is dispatched."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.rooms: list[str] = []
        self.dispatched: list[tuple[str, str]] = []
        self.named: list[str] = []
        """The rooms that were asked for by their names."""
        self.asked = 0
        self.knows_rpc = True
        self.date: str | None = None
        self.silent = False
        self._over: Callable[[], object] = bool
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return {"LIVEKIT_URL": self.url, "LIVEKIT_API_KEY": KEY, "LIVEKIT_API_SECRET": SECRET}

    def __enter__(self) -> FakeLiveKit:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._over()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/", self._root)
        app.router.add_post("/twirp/{service}/{method}", self._asked)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site.port
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        self._over = lambda: loop.call_soon_threadsafe(over.set)
        self._up.set()
        await over.wait()
        await runner.cleanup()

    async def _root(self, _: web.Request) -> web.Response:
        return web.Response(text="OK", headers={"Date": self.date} if self.date else None)

    async def _asked(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.silent:
            await asyncio.sleep(60)
        token = request.headers["Authorization"].removeprefix("Bearer ")
        try:
            api.TokenVerifier(KEY, SECRET).verify(token)
        except Exception:
            return web.Response(status=401, text=f"invalid token: {token}")
        known: dict[str, Callable[[bytes], Any]] = {
            "ListRooms": self._list_rooms,
            "ListParticipants": self._list_participants,
            "ListDispatch": lambda _: ListAgentDispatchResponse(),
            "CreateDispatch": self._create_dispatch,
            "DeleteDispatch": lambda _: AgentDispatch(),
        }
        method = request.match_info["method"]
        if method == "PerformRpc" and self.knows_rpc:
            return _refused(400, "invalid_argument", "destination identity is required")
        if method not in known:
            return _refused(404, "bad_route", "no handler for path")
        answer = known[method](await request.read())
        return web.Response(body=answer.SerializeToString(), content_type="application/protobuf")

    def _list_rooms(self, body: bytes) -> ListRoomsResponse:
        names = ListRoomsRequest.FromString(body).names
        self.named += names
        listed = [name for name in self.rooms if not names or name in names]
        return ListRoomsResponse(
            rooms=[
                Room(name=name, sid=f"RM_{name}", creation_time=1_700_000_000) for name in listed
            ]
        )

    def _list_participants(self, body: bytes) -> ListParticipantsResponse:
        room = ListParticipantsRequest.FromString(body).room
        caller = ParticipantInfo(identity="caller", kind=ParticipantInfo.Kind.STANDARD)
        return ListParticipantsResponse(participants=[caller] if room in self.rooms else [])

    def _create_dispatch(self, body: bytes) -> AgentDispatch:
        asked = CreateAgentDispatchRequest.FromString(body)
        self.dispatched.append((asked.room, asked.agent_name))
        return AgentDispatch(id="AD_1", room=asked.room, agent_name=asked.agent_name)


def _refused(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"code": code, "msg": message}, status=status)
