"""Webhooks as LiveKit makes them."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

from google.protobuf.json_format import MessageToJson
from livekit import api
from livekit.protocol.models import ParticipantInfo, Room
from livekit.protocol.webhook import WebhookEvent

KEY, SECRET = "testing", "s" * 32


def body_of(
    what: str,
    *,
    room: str = "a room",
    event_id: str = "EV_1",
    participant: ParticipantInfo | None = None,
) -> bytes:
    event = WebhookEvent(
        event=what,
        id=event_id,
        room=Room(name=room, sid="RM_1"),
        created_at=1_700_000_000,
        participant=participant,
    )
    return MessageToJson(event).encode()


def agent_left(identity: str = "agent-1", *, event_id: str = "EV_1", room: str = "a room") -> bytes:
    member = ParticipantInfo(
        identity=identity, kind=ParticipantInfo.Kind.AGENT, attributes={"lk.agent.name": "support"}
    )
    return body_of("participant_left", participant=member, event_id=event_id, room=room)


def digest_of(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def signed(
    body: bytes,
    *,
    key: str = KEY,
    secret: str = SECRET,
    seconds: float = 86_400.0,
    digest: str = "",
) -> str:
    """The Authorization header that goes with a body. Some are made as the tests are collected,
    long before they run: they last a day."""
    token = api.AccessToken(key, secret).with_ttl(timedelta(seconds=seconds))
    return token.with_sha256(digest or digest_of(body)).to_jwt()
