"""What ``doctor`` checks of a Recall server: that it answers, knows the key, and has the time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from importlib import metadata
from typing import Any

from pydantic import Field

from ..errors import InvalidInput, InvalidSettings, KeyRefused, RecallError, RoleTooLow
from ..models import Value
from ..remote.http import Http, Unreachable
from ..remote.keys import key_source
from ..seams import SystemClock
from ..settings import Settings
from ..wire import EntriesAnswer, RecordsAnswer
from .checks_clock import clock_finding
from .findings import Finding, fail, ok, warn

__all__ = ["server"]

OFF = 2.0
"""Seconds that two clocks may differ: the Date header has no fractions."""
SLOW = 0.25
"""Seconds: a slower answer is more than a reply waits for us (`seed_wait`)."""
PROBED = "/v1/calls/recall-doctor"


class _Health(Value):
    status: str


class _Described(Value):
    info: dict[str, Any] = Field(default_factory=dict)


class _Dates:
    """Notes what time the server says it is, and how long its answers take."""

    def __init__(self) -> None:
        self.date: str | None = None
        self.at = 0.0

    async def __call__(self, response: Any) -> None:
        self.date, self.at = response.headers.get("date"), time.time()


async def server(url: str) -> AsyncIterator[Finding]:
    """Check the server. What cannot be known for an earlier failure is left out."""
    try:
        keys = key_source(None, SystemClock())
    except InvalidSettings as error:
        yield fail("key", str(error), "set RECALL_API_KEY as it was shown when it was made")
        return
    http, dates = Http(url.rstrip("/"), keys, Settings()), _Dates()
    try:
        (await http._ready()).event_hooks = {"response": [dates]}
        reached = await _reached(http)
        yield reached
        if reached.level == "fail":
            return
        yield await _timely(http)
        yield await _ready(http)
        if dates.date is not None:
            says = "times of records will be wrong"
            yield clock_finding(dates.date, dates.at, "clock", warn, off=OFF, harm=says)
        yield await _key(http, shown=keys.shows_key)
    finally:
        await http.aclose()


async def _reached(http: Http) -> Finding:
    try:
        await http.ask(_Health, "GET", "/healthz")
    except Unreachable as error:
        return fail("server", str(error), "is it running, and is this its address?")
    except RecallError as error:
        return fail("server", str(error), "check the address, and what stands in front of it")
    return ok("server", f"answers at {http.address}, version {await _version(http)}")


async def _version(http: Http) -> str:
    """Return the server's version, and ours where that is another."""
    try:
        described = await http.ask(_Described, "GET", "/openapi.json")
    except RecallError:
        return "unknown"
    theirs = str(described.info.get("version", "unknown"))
    try:
        ours = metadata.version("recall-livekit")
    except metadata.PackageNotFoundError:
        return theirs
    return theirs if theirs == ours else f"{theirs} (here: {ours})"


async def _timely(http: Http) -> Finding:
    """Time a request on a connection that is open."""
    began = time.perf_counter()
    try:
        await http.ask(_Health, "GET", "/healthz")
    except RecallError as error:
        return fail("round trip", str(error), "try again: it had answered just before")
    took = time.perf_counter() - began
    if took > SLOW:
        says = f"{took * 1000:.0f} ms: resumed calls begin without what was said"
        return warn("round trip", says, "put the server near the workers")
    return ok("round trip", f"{took * 1000:.1f} ms")


async def _ready(http: Http) -> Finding:
    try:
        await http.ask(_Health, "GET", "/readyz")
    except RecallError as error:
        return fail("store", f"the server's store does not answer: {error}", "see the server's log")
    return ok("store", "the server's store answers")


async def _key(http: Http, *, shown: bool) -> Finding:
    """Find the role by asking for what each role may, in a form that does nothing."""
    try:
        await http.ask(EntriesAnswer, "GET", f"{PROBED}/entries", params={"limit": 1})
        role = "read"
        for higher, probe in (("agent", _asks_as_agent), ("admin", _asks_as_admin)):
            if await probe(http):
                role = higher
    except KeyRefused as error:
        return fail("key", str(error), "`recall-livekit key create` where the server's store is")
    except RecallError as error:
        return fail("key", f"not known: {error}", "see the server's log")
    if not shown:
        return ok("key", f"none asked for on this machine; role {role}")
    if role == "read":
        return warn("key", "accepted, role read", "workers need one of the role agent")
    return ok("key", f"accepted, role {role}")


async def _asks_as_agent(http: Http) -> bool:
    try:
        await http.ask(RecordsAnswer, "POST", "/v1/records", body=b"{}", raises=(InvalidInput,))
    except RoleTooLow:
        return False
    except InvalidInput:
        return True  # it was allowed, and asked for nothing
    return True


async def _asks_as_admin(http: Http) -> bool:
    try:
        await http.tell("DELETE", "/v1/calls/~", raises=(InvalidInput,))
    except RoleTooLow:
        return False
    except InvalidInput:
        return True  # it was allowed, and names no call
    return True
