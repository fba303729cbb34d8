"""Breaking a lease: of one holder, found frozen, and of nobody else; over both wires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from recall_livekit import CallState, Recall, StoreUnavailable
from recall_livekit.breaking import breaker_of
from recall_livekit.engine.liveness import Liveness
from recall_livekit.engine.requests import Acquire, Grant
from recall_livekit.engine.runs import Origin
from recall_livekit.errors import Fenced
from recall_livekit.models import Outcome, Turn

from ..call.test_call import CALL, until
from ..conftest import OpenRecall, transport_of

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]

ROOM = "RM_1"


class Frozen:
    """A holder whose lock or stream is there, and who does nothing any more."""

    def __init__(self, recall: Recall, writer: str = "frozen") -> None:
        self.transport = transport_of(recall)
        self.writer = writer
        self.stays: asyncio.Task[None] | None = None

    async def hold(self, sid: str | None = ROOM, read: int | None = None) -> Grant:
        lock = await self.transport.hold_lock(f"{self.writer}-lock")
        request = Acquire(
            writer=self.writer,
            attempt="1",
            ttl=60,
            origin=Origin(room_sid=sid),
            lock=lock,
            read_position=read,
        )
        grant: Grant = await self.transport.acquire(CALL, request)
        stay = self.transport.stay(CALL, self.writer, grant.epoch, lock)
        self.stays = asyncio.create_task(stay)
        said = [Turn(at=1.0, role="user", content="hello")]
        await self.transport.append(CALL, self.writer, 1, said, grant.epoch)
        return grant

    async def end(self) -> None:
        await self.transport.let_go_lock(f"{self.writer}-lock")
        if self.stays is not None:
            self.stays.cancel()
            await asyncio.wait([self.stays])


async def chain(recall: Recall) -> Sequence[Any]:
    return await recall.entries(CALL)


async def kinds(recall: Recall) -> list[str]:
    return [entry.kind for entry in await chain(recall)]


async def liveness(recall: Recall) -> Liveness:
    found: Liveness = (await transport_of(recall).read(CALL)).liveness
    return found


async def test_a_frozen_holder_s_call_is_free_at_once_and_goes_on_in_its_run(
    open_recall: OpenRecall,
) -> None:
    frozen, watcher = Frozen(open_recall()), open_recall()
    grant = await frozen.hold()
    standby = open_recall().resume(CALL, room_sid=ROOM)
    standby.start()
    await until(lambda: standby.state is CallState.STANDBY)
    began = time.monotonic()
    assert await watcher.break_lease(CALL, grant.epoch)
    assert await standby.holding(2)
    assert time.monotonic() - began < 1, "long before the TTL of 60 s"
    assert standby.briefing.run == grant.run
    assert [turn.content for turn in standby.briefing.turns] == ["hello"]
    assert frozen.stays is not None
    await asyncio.wait([frozen.stays], timeout=2)
    assert frozen.stays.done(), "it was told"
    said = [Turn(at=2.0, role="user", content="and I am back")]
    with pytest.raises(Fenced):
        await frozen.transport.append(CALL, frozen.writer, 2, said, grant.epoch)
    with pytest.raises(Fenced):
        await frozen.transport.renew(CALL, frozen.writer, grant.epoch)
    assert (await kinds(watcher))[:5] == ["run", "lease", "records", "lease", "release"]
    assert (await chain(watcher))[4].outcome == "handover"
    await standby.aclose()
    await frozen.end()


async def test_a_holder_that_lives_after_all_takes_its_call_again(open_recall: OpenRecall) -> None:
    recall = open_recall()
    async with recall.resume(CALL, room_sid=ROOM) as call:
        epoch = call.epoch
        assert await open_recall().break_lease(CALL, epoch)
        await until(lambda: call.epoch == epoch + 2 and call.state is CallState.HOLDING)
        call.record_turn("user", "still here")
        assert await call.flush(2)


async def test_only_the_epoch_that_was_seen_is_broken(open_recall: OpenRecall) -> None:
    frozen, watcher = Frozen(open_recall()), open_recall()
    epoch = (await frozen.hold()).epoch
    before = await kinds(watcher)
    for other in (epoch - 1, epoch + 1, epoch + 7):
        assert not await watcher.break_lease(CALL, other)
    assert await kinds(watcher) == before
    assert await liveness(watcher) is Liveness.LIVE
    assert await watcher.break_lease(CALL, epoch)
    assert not await watcher.break_lease(CALL, epoch), "nobody holds it any more"
    await frozen.end()


async def test_what_has_no_holder_is_left_as_it_is(open_recall: OpenRecall) -> None:
    watcher = open_recall()
    assert not await watcher.break_lease(CALL, 1)
    assert await kinds(watcher) == [], "no chain was made"
    outcomes: tuple[Outcome, ...] = ("handover", "left", "ended")
    for number, outcome in enumerate(outcomes):
        frozen = Frozen(open_recall(), f"w{number}")
        epoch = (await frozen.hold()).epoch
        await frozen.transport.release(CALL, frozen.writer, epoch, outcome)
        before = await kinds(watcher)
        for other in (epoch, epoch + 1):
            assert not await watcher.break_lease(CALL, other)
        assert await kinds(watcher) == before
        await frozen.end()


async def test_an_erased_call_stays_erased_and_the_run_after_it_can_be_broken(
    open_recall: OpenRecall,
) -> None:
    frozen, watcher = Frozen(open_recall()), open_recall()
    epoch = (await frozen.hold()).epoch
    await watcher.erase(CALL)
    before = await kinds(watcher)
    for other in (epoch, epoch + 1):
        assert not await watcher.break_lease(CALL, other)
    assert await kinds(watcher) == before
    await frozen.end()
    again = Frozen(open_recall(), "later")
    grant = await again.hold("RM_2", read=len(before))
    assert await watcher.break_lease(CALL, grant.epoch)
    assert await liveness(watcher) is Liveness.FREE
    await again.end()


@pytest.mark.parametrize("lost", ["acquire", "release"])
async def test_whose_answer_was_lost_repeats_it(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    frozen, watcher, other = Frozen(open_recall()), open_recall(), open_recall()
    epoch = (await frozen.hold()).epoch
    ask = getattr(transport_of(watcher), lost)

    async def loses(*what: Any) -> Any:
        await ask(*what)
        monkeypatch.setattr(transport_of(watcher), lost, ask)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(transport_of(watcher), lost, loses)
    with pytest.raises(StoreUnavailable):
        await watcher.break_lease(CALL, epoch)
    done = await other.break_lease(CALL, epoch)
    assert done is (lost == "acquire"), "another watcher finishes it; what is done is done"
    assert not await watcher.break_lease(CALL, epoch)
    assert await liveness(watcher) is Liveness.FREE
    leases = [entry.writer for entry in await chain(watcher) if entry.kind == "lease"]
    assert leases == ["frozen", breaker_of(epoch)]
    await frozen.end()


async def test_many_who_break_it_at_once_break_it_once(open_recall: OpenRecall) -> None:
    frozen = Frozen(open_recall())
    epoch = (await frozen.hold()).epoch
    watchers = [open_recall() for _ in range(4)]
    done: list[bool] = []

    async def break_it(watcher: Recall) -> None:
        done.append(await watcher.break_lease(CALL, epoch))

    async with anyio.create_task_group() as tasks:
        for watcher in watchers:
            tasks.start_soon(break_it, watcher)
    assert any(done)
    assert (await kinds(watchers[0]))[3:] == ["lease", "release"]
    await frozen.end()


async def test_one_who_dies_over_it_keeps_the_call_from_nobody_for_long(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, watcher = Frozen(open_recall()), open_recall()
    epoch = (await frozen.hold()).epoch

    async def dies(*_: object) -> None:
        raise StoreUnavailable("it is gone")

    monkeypatch.setattr(transport_of(watcher), "release", dies)
    with pytest.raises(StoreUnavailable):
        await watcher.break_lease(CALL, epoch)
    assert await liveness(watcher) is Liveness.LIVE
    began = time.monotonic()
    async with open_recall().resume(CALL, room_sid=ROOM) as call:
        assert time.monotonic() - began < 3.5
        assert call.briefing.run == 1
    await frozen.end()
