"""A worker is frozen inside a commit: its call waits for it, and no other call does.

``python -m tests.crash frozen_commit DIRECTORY BOUNDARY END``: SIGSTOP at the BOUNDARY-th step
of a commit (1: nothing is written yet; 2: half a frame is); END is ``kill`` or ``wake``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from functools import partial

from recall_livekit import Recall, Settings
from recall_livekit.errors import StoreUnavailable
from recall_livekit.stores.sqlite import SqliteStore

from .dying import Death, watch_disk
from .hunt import assert_whole, look
from .nursery import Child, Tell, raise_child
from .stories import CALL, Hand
from .sweep import done

SETTINGS = Settings(lease_ttl=2.0)
TIMEOUT = 0.5


async def freeze(directory: str, boundary: int, tell: Tell) -> None:
    """Hold the call, and stop inside the commit of a record."""
    death = Death(number=signal.SIGSTOP)
    watch_disk(death)
    recall = Recall(SqliteStore(directory), settings=SETTINGS)
    async with recall.resume(CALL) as call:
        for number in range(5):
            call.record_turn("user", f"before {number}")
            assert await call.flush(5)
            tell(acked=f"before {number}")
        death.at = death.passed + boundary
        call.record_turn("user", "frozen")
        if await call.flush(5):
            tell(acked="frozen")
        await asyncio.sleep(60)


async def others(directory: str, tell: Tell) -> None:
    """Use other calls of the directory, and read the frozen one."""
    recall = Recall.open(f"sqlite:///{directory}")
    began = time.monotonic()
    for name in ("another", "one more"):
        async with recall.resume(name) as call:
            for number in range(10):
                call.record_turn("user", f"{number}")
                assert await call.flush(2)
        assert len(await recall.turns(name)) == 10
    tell(took=time.monotonic() - began)
    tell(read=[turn.content for turn in await recall.turns(CALL)])
    await recall.aclose()


async def refused(directory: str, tell: Tell) -> None:
    """Try to write into the frozen call's file, and to take the call by force."""
    store = SqliteStore(directory, timeout=TIMEOUT)
    thief = Hand(store, tell, "thief")
    for attempt in (store.append(CALL, 1_000_000, b"{}"), thief.take(steal=True)):
        try:
            await attempt
        except StoreUnavailable as error:
            tell(refused=str(error))
    await store.aclose()


async def follow(directory: str, tell: Tell) -> None:
    """The next worker: it waits for the TTL, then takes the call as soon as it can."""
    recall = Recall(SqliteStore(directory, timeout=TIMEOUT), settings=SETTINGS)
    call = recall.resume(CALL)
    call.subscribe(lambda state: tell(**{state.value: time.monotonic()}))
    async with call:
        call.record_turn("user", "after")
        assert await call.flush(5)
        tell(acked="after")
    await recall.aclose()


def look_around(directory: str, frozen: Child, follower: Child) -> None:
    """Look at everything while it is frozen."""
    seen = done(partial(others, directory))
    assert seen.values("took")[0] < 3.0, "another call waited for the frozen one"
    assert seen.values("read")[0] == frozen.values("acked")
    follower.listen(SETTINGS.lease_ttl + 1.0)
    assert "standby" in follower.told[-1], "it went past the frozen commit"
    assert len(done(partial(refused, directory)).values("refused")) == 2


def end_it(frozen: Child, end: str) -> None:
    if end == "wake":
        frozen.signal(signal.SIGCONT)
        frozen.listen(1.0)
    frozen.kill()


def main(directory: str, boundary: str, end: str) -> None:
    with raise_child(partial(freeze, directory, int(boundary))) as frozen:
        frozen.stopped()
        with raise_child(partial(follow, directory)) as follower:
            look_around(directory, frozen, follower)
            end_it(frozen, end)
            killed = time.monotonic()
            waited = max(0.0, follower.wait_for("holding") - killed)
            assert follower.end() == 0
    acked = frozen.values("acked") + follower.values("acked")
    found = done(partial(look, directory, CALL)).values("found")
    assert_whole(found, acked, 1)
    print(json.dumps({"kills": 1, "acked": len(acked), "worst_ms": round(1000 * waited)}))
