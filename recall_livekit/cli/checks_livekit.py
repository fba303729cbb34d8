"""What ``doctor`` checks of a LiveKit server, if one is named: what a watcher needs of it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import aiohttp
from livekit import api

from ..call_ids import RESERVED
from ..errors import InvalidSettings, RoomsUnavailable
from ..rooms.address import cloud_host
from ..rooms.livekit_rooms import LiveKitRooms, Unanswered, Unsupported
from ..rooms.orders import ALIVE
from .checks_clock import clock_finding
from .findings import Finding, fail, ok, warn
from .livekit_server import check_livekit_url, missing_variables, refuses_key
from .times import lasting

__all__ = ["livekit"]

OFF = 30.0
"""Seconds that two clocks may differ: at 60 tokens and webhooks are refused."""
REQUEST_SECONDS = 5.0
_OTHER_SCHEME = {"ws": "http", "wss": "https"}


async def livekit(variables: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Check it. What cannot be known for an earlier failure is left out."""
    named = _named(variables)
    yield named
    if named.level == "fail":
        return
    url = variables["LIVEKIT_URL"]
    rooms = LiveKitRooms(url, variables["LIVEKIT_API_KEY"], variables["LIVEKIT_API_SECRET"])
    try:
        reached = await _reached(rooms)
        yield reached
        if reached.level == "ok":
            yield await _asking(rooms)
    finally:
        await rooms.aclose()
    date = await _date(url)
    if date is not None:
        harm = "tokens and webhooks are refused"
        yield clock_finding(date, time.time(), "LiveKit's clock", fail, off=OFF, harm=harm)


def _named(variables: Mapping[str, str]) -> Finding:
    missing = missing_variables(variables)
    if missing:
        says = f"not set: {', '.join(missing)}"
        return fail("LIVEKIT_URL", says, "set them as for a worker: the key of `keys:`")
    url = variables["LIVEKIT_URL"]
    try:
        check_livekit_url(url)
    except InvalidSettings as error:
        return fail("LIVEKIT_URL", str(error), "correct LIVEKIT_URL")
    if cloud_host(url):
        return ok("LIVEKIT_URL", f"{url}: LiveKit Cloud restarts jobs itself, without a watcher")
    return ok("LIVEKIT_URL", url)


async def _reached(rooms: LiveKitRooms) -> Finding:
    began = time.perf_counter()
    try:
        await rooms.rooms([f"{RESERVED}doctor"])
    except RoomsUnavailable as error:
        if refuses_key(error):
            remedy = "set LIVEKIT_API_KEY and LIVEKIT_API_SECRET to one of its `keys:`"
            return fail("LiveKit", "it answers, and does not take the key", remedy)
        return fail("LiveKit", str(error), "is it running, and is this its address?")
    return ok("LiveKit", f"answers and takes the key, {lasting(time.perf_counter() - began)}")


async def _asking(rooms: LiveKitRooms) -> Finding:
    """Ask nobody, in no room: a server that knows the question says that something is missing."""
    known = ok("asking agents", "this server can (PerformRpc)")
    try:
        await rooms.perform("", "", ALIVE, seconds=1.0)
    except (Unanswered, Unsupported):
        return known
    except RoomsUnavailable as error:
        cause = error.__cause__
        if not isinstance(cause, api.TwirpError):
            return warn("asking agents", str(error), "try again: it had answered just before")
        if cause.code == api.TwirpErrorCode.BAD_ROUTE:
            says = "this server cannot (PerformRpc): a frozen agent is noticed by its lease only"
            return warn("asking agents", says, "use a newer livekit-server (1.13.5 is tested)")
    return known


async def _date(url: str) -> str | None:
    """Return what time the server says it is; None if it does not say."""
    parts = urlsplit(url)
    address = parts._replace(scheme=_OTHER_SCHEME.get(parts.scheme, parts.scheme)).geturl()
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(address) as answer,
        ):
            return answer.headers.get("Date")
    except (TimeoutError, aiohttp.ClientError, OSError):
        return None
