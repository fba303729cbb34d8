"""LiveKit's server API, as far as we need it: who is in a room, does the agent live, one more.

The watcher uses it, a worker that drains, and a standby that asks whether the holder lives.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
from google.protobuf.message import DecodeError
from livekit import api
from livekit.api.twirp_client import TwirpClient
from livekit.protocol.models import ParticipantInfo
from livekit.protocol.room import PerformRpcRequest, PerformRpcResponse
from pydantic import ValidationError

from ..errors import InvalidSettings, RecallError, RoomsUnavailable
from .orders import ALIVE, ORDERS, STANDBY, Orders, Pulse, read_orders
from .protocol import Refused

__all__ = [
    "Dispatched",
    "LiveKitRooms",
    "Member",
    "Room",
    "Unanswered",
    "Unsupported",
]

REQUEST_SECONDS = 5.0
"""The longest that one request to LiveKit takes."""

PATIENCE = 1.0
"""How much longer than whoever was asked the server itself may take: then it is *its* silence."""
LATE = 0.1
"""How much longer it takes before it is looked whether that one is still there: of somebody who
leaves while being asked the server says nothing for 3 s."""

_CALLERS = (
    ParticipantInfo.Kind.STANDARD,
    ParticipantInfo.Kind.SIP,
    ParticipantInfo.Kind.CONNECTOR,
)
_AGENT_NAME = "lk.agent.name"
_RPC_ERROR = re.compile(r"RpcError (\d+)")
_RPC_ANSWERED = (1400, 1500)
"""No such method, or it failed: whoever says that lives. The others are silence."""
_CUT = ("transport failure", "stream closed")
"""What it says of somebody to be asked whose connection is lost: dead or frozen for some 16 s, or
leaving just now."""
_COMING = "data channel is not available"
"""What it says of somebody to be asked who has just joined: for 0.1 s nobody can be asked."""
_IN_TROUBLE = (api.TwirpErrorCode.UNAVAILABLE, api.TwirpErrorCode.UNKNOWN)
"""It is the server that fails, or what stands in front of it, whatever was asked."""
_NOBODY = "no response from servers"
"""What the server says of a room, or of somebody to be asked in it, that is gone."""


@dataclass(frozen=True, slots=True)
class Room:
    """A room that is open."""

    name: str
    sid: str
    created_at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Member:
    """Somebody in a room."""

    identity: str
    kind: Literal["caller", "agent", "other"]
    joined_at: float
    """Unix seconds."""
    agent_name: str | None = None
    standby: str = ""
    """The kind of standby that it is, by its own attribute; "" if it is none."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A dispatch that the room had."""

    id: str
    agent_name: str
    metadata: str
    orders: Orders = field(default_factory=Orders)
    at: float = 0.0
    """When it was made, Unix seconds by LiveKit's clock."""
    launched: bool = False
    """Whether a worker took it, which a self-hosted server tells 5 s later."""


class LiveKitRooms:
    """A handle on one LiveKit server. Every request is bounded by `REQUEST_SECONDS`.

    Every method raises `RoomsUnavailable` if the server cannot be asked, and `Refused`, which is
    one, if it answers and refuses.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, api_secret: str | None = None
    ) -> None:
        """Name the server; default `LIVEKIT_URL`, `LIVEKIT_API_KEY` and `LIVEKIT_API_SECRET`.

        Needs a running event loop.

        Raises:
            InvalidSettings: One of them is missing.
        """
        url, key, secret = (
            _given(url, "LIVEKIT_URL"),
            _given(api_key, "LIVEKIT_API_KEY"),
            _given(api_secret, "LIVEKIT_API_SECRET"),
        )
        self.url = url
        self._key, self._secret = key, secret
        self._session = aiohttp.ClientSession()
        self._api = api.LiveKitAPI(url, key, secret, session=self._session)
        self._twirp = TwirpClient(self._session, url, "livekit", failover=False)

    # --- looking ------------------------------------------------------------------------------

    async def rooms(self, names: Sequence[str] = ()) -> list[Room]:
        """Return the rooms that are open, all or those of these names."""
        async with _reached():
            listed = await self._api.room.list_rooms(api.ListRoomsRequest(names=names))
        return [
            Room(one.name, one.sid, one.creation_time_ms / 1000 or float(one.creation_time))
            for one in listed.rooms
        ]

    async def members(self, room: str) -> list[Member]:
        """Return who is in the room; nobody, if there is no such room."""
        try:
            async with _reached():
                request = api.ListParticipantsRequest(room=room)
                listed = await self._api.room.list_participants(request)
        except _NotThere:
            return []
        return [_member_of(one) for one in listed.participants]

    async def dispatches(self, room: str) -> list[Dispatched]:
        """Return the dispatches that the room had, oldest first: what each agent was told, not
        whether it lives (a self-hosted server never updates that)."""
        try:
            async with _reached():
                listed = await self._api.agent_dispatch.list_dispatch(room)
        except _NotThere:
            return []
        listed = sorted(listed, key=lambda one: one.state.created_at)
        return [
            Dispatched(
                one.id,
                one.agent_name,
                one.metadata,
                read_orders(one.attributes, ""),
                one.state.created_at / 1e9,
                bool(one.state.jobs),
            )
            for one in listed
        ]

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        """Return how this agent stands; None if it does not answer within `seconds`, or is gone.

        An agent that is not ours, or too busy starting to know the question, has the state "".
        """
        try:
            return Pulse.model_validate_json(
                await self.perform(room, identity, ALIVE, seconds=seconds)
            )
        except Unanswered:
            return None
        except (Unsupported, ValidationError):
            return Pulse(state="")

    # --- acting -------------------------------------------------------------------------------

    async def perform(
        self, room: str, identity: str, method: str, payload: str = "", *, seconds: float
    ) -> str:
        """Call a method that a participant registered, and return its answer.

        Raises:
            Unanswered: It is frozen, dead or gone.
            Unsupported: It lives and knows no such method, or the method failed.
        """
        request = PerformRpcRequest(
            room=room,
            destination_identity=identity,
            method=method,
            payload=payload,
            response_timeout_ms=max(1, int(1000 * seconds)),
        )
        token = api.AccessToken(self._key, self._secret)
        token = token.with_grants(api.VideoGrants(room_admin=True, room=room))
        headers = {"authorization": f"Bearer {token.to_jwt()}"}
        try:
            async with _reached(seconds + PATIENCE):
                asked = self._twirp.request(
                    "RoomService", "PerformRpc", request, headers, PerformRpcResponse
                )
                answer = await self._unless_gone(asked, room, identity, seconds + LATE)
        except _NotThere:
            raise Unanswered(f"{identity} is not in the room") from None
        return answer.payload

    async def _unless_gone(
        self, asked: Coroutine[Any, Any, PerformRpcResponse], room: str, identity: str, late: float
    ) -> PerformRpcResponse:
        """Return the answer; after `late` seconds look whether anybody is there to give one."""
        asking = asyncio.ensure_future(asked)
        try:
            await asyncio.wait([asking], timeout=late)
            if not asking.done():
                await self._check_there(room, identity)
            return await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])

    async def _check_there(self, room: str, identity: str) -> None:
        """Raise Unanswered if it is not in the room: the server is 3 s silent about the gone."""
        if all(member.identity != identity for member in await self.members(room)):
            raise Unanswered(f"{identity} is not in the room")

    async def dispatch(
        self, room: Room, agent_name: str, *, metadata: str = "", orders: Orders | None = None
    ) -> str:
        """Ask for one more agent; return the dispatch's id. It may be dropped in silence.

        A room that is gone would be made again: look first.
        """
        attributes = {ORDERS: orders.model_dump_json(exclude_defaults=True)} if orders else None
        request = api.CreateAgentDispatchRequest(
            agent_name=agent_name, room=room.name, metadata=metadata, attributes=attributes
        )
        try:
            async with _reached():
                return (await self._api.agent_dispatch.create_dispatch(request)).id
        except _NotThere as error:
            raise Refused(f"LiveKit's server has no such room: {error}") from None

    async def withdraw(self, room: str, dispatch: str) -> None:
        """End a dispatch and its job, if they are there."""
        try:
            async with _reached():
                await self._api.agent_dispatch.delete_dispatch(dispatch, room)
        except _NotThere:
            return

    async def evict(self, room: str, identity: str) -> None:
        """Throw a participant out, if it is there."""
        who = api.RoomParticipantIdentity(room=room, identity=identity)
        try:
            async with _reached():
                await self._api.room.remove_participant(who)
        except _NotThere:
            return

    async def aclose(self) -> None:
        """Close the connections."""
        await self._session.close()


class Unanswered(RecallError):
    """Whoever was asked did not answer: frozen, dead or gone."""


class Unsupported(RecallError):
    """Whoever was asked lives, and does not know the question."""


class _NotThere(Exception):
    """The room, the participant or the dispatch is gone."""


def _given(value: str | None, variable: str) -> str:
    found = value or os.environ.get(variable)
    if not found:
        raise InvalidSettings(f"no LiveKit server: set {variable}, or pass it")
    return found


def _member_of(info: ParticipantInfo) -> Member:
    """Return what is of use to us of LiveKit's own description."""
    if info.kind in _CALLERS:
        kind: Literal["caller", "agent", "other"] = "caller"
    else:
        kind = "agent" if info.kind == ParticipantInfo.Kind.AGENT else "other"
    return Member(
        identity=info.identity,
        kind=kind,
        joined_at=info.joined_at_ms / 1000 or float(info.joined_at),
        agent_name=info.attributes.get(_AGENT_NAME),
        standby=info.attributes.get(STANDBY, ""),
    )


@asynccontextmanager
async def _reached(seconds: float | None = None) -> AsyncIterator[None]:
    """Bound a request, which the API's own client does not, and turn what it raises into what a
    caller can act on."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS if seconds is None else seconds):
            yield
    except api.TwirpError as error:
        raise _meaning(error) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise RoomsUnavailable(f"LiveKit's server cannot be reached: {error!r}") from error
    except (DecodeError, AttributeError, ValueError) as error:
        raise RoomsUnavailable(f"what answered is no LiveKit server: {error!r}") from error


def _meaning(error: api.TwirpError) -> Exception:
    rpc = _RPC_ERROR.search(error.message)
    if rpc is not None:
        answered = int(rpc[1]) in _RPC_ANSWERED
        return (Unsupported if answered else Unanswered)(error.message)
    if any(cut in error.message for cut in _CUT):
        return Unanswered(error.message)
    if _COMING in error.message:
        return Unsupported(error.message)
    if error.code == api.TwirpErrorCode.NOT_FOUND or _NOBODY in error.message:
        return _NotThere(error.message)
    if error.status in (401, 403):
        return RoomsUnavailable("LiveKit's server refuses the key and secret: check them")
    kind = RoomsUnavailable if error.code in _IN_TROUBLE else Refused
    return kind(f"LiveKit's server refused: {error.code}: {error.message}")
