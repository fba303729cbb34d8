"""LiveKit's webhooks: proven to be LiveKit's, and told apart by what they say of a room.

A webhook is only ever a hint that makes somebody look at a room now. So nothing depends on one
that is lost, and nothing is done that is wrong if one comes late, twice, or before another.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

import jwt
from google.protobuf.json_format import ParseError
from livekit import api
from livekit.protocol.webhook import WebhookEvent

from ..errors import InvalidSettings
from .known import remember

__all__ = ["BODY_BYTES", "OUTCOMES", "Outcome", "Received", "Webhooks"]

BODY_BYTES = 256 * 1024
"""The most bytes of one webhook; those of rooms and participants have some hundreds."""
REMEMBERED = 4096
"""So many ids of events are known again. One that was forgotten costs one more look at a room."""
NO_EVENT = "it is signed with this key, but is no event: who sends it?"

Outcome = Literal["accepted", "ignored", "doubled", "expired", "forged", "malformed", "too_large"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
_SIGNS = (
    "room_started",
    "room_finished",
    "participant_joined",
    "participant_left",
    "participant_connection_aborted",
)


@dataclass(frozen=True, slots=True)
class Received:
    """What became of one webhook."""

    outcome: Outcome
    room: str | None = None
    """The name of the room that wants to be looked at; only of an accepted one."""
    why: str = ""
    """What is wrong, and what to do about it; nothing that a stranger wrote."""


class Webhooks:
    """Takes LiveKit's webhooks. It never raises for what was sent."""

    def __init__(self, api_key: str | None = None, api_secret: str | None = None) -> None:
        """Name the key that LiveKit signs with (``webhook: api_key`` in its configuration).

        Default `LIVEKIT_API_KEY` and `LIVEKIT_API_SECRET`.

        Raises:
            InvalidSettings: One of them is missing.
        """
        key = api_key or os.environ.get("LIVEKIT_API_KEY")
        secret = api_secret or os.environ.get("LIVEKIT_API_SECRET")
        if not (key and secret):
            raise InvalidSettings("set LIVEKIT_API_KEY and LIVEKIT_API_SECRET to verify webhooks")
        self._receiver = api.WebhookReceiver(api.TokenVerifier(key, secret))
        self._seen: dict[str, None] = {}
        self.outcomes: Counter[Outcome] = Counter()
        """How many there were of each outcome."""

    def receive(self, body: str | bytes, authorization: str) -> Received:
        """Return what became of the webhook with this body and this Authorization header.

        ``ignored`` is one that says nothing of an agent (a track, an egress, a type that this
        version does not know); ``expired`` is signed, but for another time than now.
        """
        received = self._received(body, authorization)
        self.outcomes[received.outcome] += 1
        return received

    def _received(self, body: str | bytes, authorization: str) -> Received:
        raw = body.encode(errors="surrogatepass") if isinstance(body, str) else body
        if len(raw) > BODY_BYTES:
            return Received("too_large", why=f"a webhook has at most {BODY_BYTES} bytes")
        event = self._verified(raw, authorization)
        return event if isinstance(event, Received) else self._told(event)

    def _verified(self, raw: bytes, authorization: str) -> WebhookEvent | Received:
        try:
            token = authorization.removeprefix("Bearer ").strip()
            return self._receiver.receive(raw.decode(), token)
        except (jwt.ExpiredSignatureError, jwt.ImmatureSignatureError):
            why = "its signature is not for now: are this clock and LiveKit's right?"
            return Received("expired", why=why)
        except ParseError:
            return Received("malformed", why=NO_EVENT)
        except Exception:  # whatever a stranger's token makes the parsers raise
            why = "it is not signed with this key: see `webhook: api_key` of livekit.yaml"
            return Received("forged", why=why)

    def _told(self, event: WebhookEvent) -> Received:
        if event.id and remember(self._seen, event.id, REMEMBERED):
            return Received("doubled")
        if not event.event:
            return Received("malformed", why=NO_EVENT)
        if event.event not in _SIGNS:
            return Received("ignored")
        if not event.room.name:
            return Received("malformed", why=f"{event.event} names no room")
        return Received("accepted", event.room.name)
