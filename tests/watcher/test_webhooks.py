"""Webhooks: LiveKit's own become signs, whatever else comes has a name and does nothing."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from livekit import api

from recall_livekit import InvalidSettings
from recall_livekit.testing.leash import eventually, free_ports
from recall_livekit.testing.livekit_server import LiveKitServer
from recall_livekit.watcher import webhooks
from recall_livekit.watcher.webhooks import BODY_BYTES, Received, Webhooks

from .hooks import KEY, SECRET, agent_left, body_of, digest_of, signed


def received(body: bytes, authorization: str | None = None) -> Received:
    return Webhooks(KEY, SECRET).receive(body, authorization or signed(body))


def outcome(body: bytes, authorization: str | None = None) -> str:
    got = received(body, authorization)
    assert (got.room is not None) == (got.outcome == "accepted")
    assert bool(got.why) == (got.outcome in ("expired", "forged", "malformed", "too_large"))
    return got.outcome


def test_an_agent_that_left_is_a_sign() -> None:
    assert received(agent_left()) == Received("accepted", "a room")


@pytest.mark.parametrize(
    "what",
    [
        "room_started",
        "room_finished",
        "participant_joined",
        "participant_left",
        "participant_connection_aborted",
    ],
)
def test_what_says_something_of_agents_is_a_sign(what: str) -> None:
    assert received(body_of(what)) == Received("accepted", "a room")


def test_text_and_a_bearer_are_taken_too() -> None:
    body = agent_left()
    hooks = Webhooks(KEY, SECRET)
    assert hooks.receive(body.decode(), f"Bearer {signed(body)}").outcome == "accepted"


@pytest.mark.parametrize("what", ["track_published", "egress_ended", "something_of_2030"])
def test_what_says_nothing_of_agents_is_ignored(what: str) -> None:
    assert outcome(body_of(what)) == "ignored"


def test_fields_of_a_newer_livekit_are_no_fault() -> None:
    body = json.dumps(json.loads(agent_left()) | {"invented": {"in": 2030}}).encode()
    assert outcome(body) == "accepted"


# --- not LiveKit's ------------------------------------------------------------------------------


BODY = agent_left()


def usual() -> dict[str, object]:
    """What LiveKit says of BODY."""
    now = datetime.now(UTC)
    return {"iss": KEY, "nbf": now, "exp": now + timedelta(days=1), "sha256": digest_of(BODY)}


def claims(**changed: object) -> str:
    kept = {name: value for name, value in (usual() | changed).items() if value is not None}
    return jwt.encode(kept, SECRET, algorithm="HS256")


def unsigned() -> str:
    return jwt.encode(usual(), "", algorithm="none")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer ",
        "nonsense",
        "a.b.c",
        "é.\udcff.\x00",
        signed(BODY, secret="t" * 32),
        signed(BODY, key="another"),
        signed(BODY, digest=base64.b64encode(b"another").decode()),
        signed(BODY, digest="no base64: é"),
        signed(body_of("room_finished")),
        claims(sha256=None),
        claims(exp=None),
        claims(video="no object"),
        unsigned(),
        base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.x",
    ],
)
def test_what_is_not_signed_with_the_key_is_forged(authorization: str) -> None:
    got = Webhooks(KEY, SECRET).receive(BODY, authorization)
    assert (got.outcome, got.room) == ("forged", None)
    assert "not signed with this key" in got.why


def test_what_those_were_made_from_is_not() -> None:
    assert outcome(BODY, claims()) == "accepted"


def test_a_changed_body_is_forged() -> None:
    body = agent_left(room="room 1")
    assert outcome(body.replace(b"room 1", b"room 2"), signed(body)) == "forged"


@given(st.binary(max_size=200), st.text(max_size=200))
def test_nothing_that_is_sent_is_an_exception(body: bytes, authorization: str) -> None:
    assert outcome(body, authorization or "x") == "forged"
    assert outcome(body) in ("malformed", "forged", "ignored")


def test_no_word_of_a_stranger_is_told() -> None:
    got = received(b'{"room": "EVIL"}', "EVIL")
    assert "EVIL" not in got.why


def test_a_signature_of_another_time_is_expired() -> None:
    old = signed(BODY, seconds=-61)
    assert outcome(BODY, old) == "expired"
    assert "clock" in received(BODY, old).why
    assert outcome(BODY, claims(nbf=datetime.now(UTC) + timedelta(minutes=2))) == "expired"


def test_clocks_may_be_a_little_apart() -> None:
    assert outcome(BODY, signed(BODY, seconds=-50)) == "accepted"


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b"null", b'{"event": 3}', b'{"event": "participant_left"}']
)
def test_a_signed_body_that_is_no_event_is_malformed(body: bytes) -> None:
    assert outcome(body) == "malformed"


def test_a_body_has_a_size() -> None:
    full = BODY + b" " * (BODY_BYTES - len(BODY))
    assert outcome(full) == "accepted"
    assert outcome(full + b" ") == "too_large"


# --- twice, late, counted -----------------------------------------------------------------------


def test_one_that_comes_twice_is_taken_once() -> None:
    hooks = Webhooks(KEY, SECRET)
    bodies = [agent_left(event_id="EV_1"), agent_left(event_id="EV_2"), agent_left(event_id="EV_1")]
    got = [hooks.receive(body, signed(body)).outcome for body in bodies]
    assert got == ["accepted", "accepted", "doubled"]


def test_a_forged_one_does_not_hide_the_real_one() -> None:
    hooks = Webhooks(KEY, SECRET)
    assert hooks.receive(BODY, signed(BODY, secret="t" * 32)).outcome == "forged"
    assert hooks.receive(BODY, signed(BODY)).outcome == "accepted"


def test_events_without_an_id_are_never_doubled() -> None:
    hooks = Webhooks(KEY, SECRET)
    body = agent_left(event_id="")
    got = {hooks.receive(body, signed(body)).outcome for _ in range(3)}
    assert got == {"accepted"}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "REMEMBERED", 2)
    hooks = Webhooks(KEY, SECRET)
    order = ["EV_1", "EV_2", "EV_3", "EV_3", "EV_2", "EV_1"]
    bodies = [agent_left(event_id=one) for one in order]
    got = [hooks.receive(body, signed(body)).outcome for body in bodies]
    assert got == ["accepted"] * 3 + ["doubled"] * 2 + ["accepted"]
    assert len(hooks._seen) == 2


def test_one_that_comes_late_is_a_sign_all_the_same() -> None:
    """It only makes somebody look: what happened last does not matter."""
    hooks = Webhooks(KEY, SECRET)
    for event_id, what in (("EV_2", "room_finished"), ("EV_1", "room_started")):
        body = body_of(what, event_id=event_id)
        assert hooks.receive(body, signed(body)).outcome == "accepted"


def test_each_outcome_is_counted() -> None:
    hooks = Webhooks(KEY, SECRET)
    for body, authorization in (
        (BODY, signed(BODY)),
        (BODY, signed(BODY)),
        (BODY, "x"),
        (BODY, "y"),
        (b"[]", signed(b"[]")),
    ):
        hooks.receive(body, authorization)
    assert hooks.outcomes == {"accepted": 1, "doubled": 1, "forged": 2, "malformed": 1}


# --- the key ------------------------------------------------------------------------------------


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEKIT_API_KEY", KEY)
    monkeypatch.setenv("LIVEKIT_API_SECRET", SECRET)
    assert Webhooks().receive(BODY, signed(BODY)).outcome == "accepted"
    monkeypatch.delenv("LIVEKIT_API_SECRET")
    with pytest.raises(InvalidSettings, match="LIVEKIT_API_SECRET"):
        Webhooks()


# --- LiveKit's own ------------------------------------------------------------------------------


@pytest.mark.livekit
@pytest.mark.anyio
async def test_a_real_server_s_webhooks_are_signs(tmp_path: Path) -> None:
    from livekit import rtc

    (port,) = free_ports(1)
    server = LiveKitServer(tmp_path, webhooks=[f"http://127.0.0.1:{port}/"])
    hooks, got, told = Webhooks(server.key, server.secret), list[Received](), set[str]()

    async def receive(request: web.Request) -> web.Response:
        body = await request.read()
        told.add(json.loads(body)["event"])
        got.append(hooks.receive(body, request.headers["Authorization"]))
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with server, server.api() as livekit:
            room = rtc.Room()
            await room.connect(server.url, _agent_s_token(server))
            await room.disconnect()
            await livekit.room.delete_room(api.DeleteRoomRequest(room="a room"))

            async def all_came() -> bool:
                return len(got) >= 4

            await eventually(all_came, within=10)
    finally:
        await runner.cleanup()
    assert {one.outcome for one in got} == {"accepted"}, hooks.outcomes
    assert told == {"room_started", "room_finished", "participant_joined", "participant_left"}
    assert {one.room for one in got} == {"a room"}


def _agent_s_token(server: LiveKitServer) -> str:
    token = api.AccessToken(server.key, server.secret).with_identity("agent-1").with_kind("agent")
    return token.with_grants(api.VideoGrants(room_join=True, room="a room", agent=True)).to_jwt()
