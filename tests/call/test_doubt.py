"""Evidence that is not certain: a holder that is only cut off from the records keeps its call."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from recall_livekit import Call, CallState, Held, Recall, Settings, doubt
from recall_livekit.errors import RoomsUnavailable
from recall_livekit.stores.sqlite import SqliteStore

from ..conftest import OpenRecall
from ..remote.serving import servers
from ..remote.wire import Wire, wire
from .test_call import CALL, said, until

pytestmark = pytest.mark.anyio
GRACE = Settings().disconnect_grace
MARGIN = 0.3
"""What a takeover may take beside the grace, on a busy machine."""
TTL = 2.0


class Room:
    """What whoever is in the room would say, and how often it was asked."""

    def __init__(self, lives: bool, *, takes: float = 0.0, fails: bool = False) -> None:
        self.lives, self.takes, self.fails = lives, takes, fails
        self.asked: list[float] = []

    async def somebody_lives(self) -> bool:
        self.asked.append(time.monotonic())
        await anyio.sleep(self.takes)
        if self.fails:
            raise RoomsUnavailable("LiveKit does not answer")
        return self.lives


def asking(recall: Recall, room: Room, **options: object) -> Call:
    call = recall.resume(CALL, **options)  # type: ignore[arg-type]
    call.ask_first(room.somebody_lives)
    return call


@dataclass
class Two:
    """A holder behind a wire of its own, and a handle for others that reach the server."""

    holder: Call
    cable: Wire
    others: Recall
    url: str

    def cut_off(self) -> None:
        """The holder reaches the records no more; nobody but them is told."""
        self.cable.drop()
        self.cable.cut()

    def standby(self, room: Room) -> Call:
        call = asking(self.others, room)
        call.start()
        return call


@asynccontextmanager
async def two(directory: Path) -> AsyncIterator[Two]:
    settings = Settings(lease_ttl=TTL, request_wait=0.5, flush_wait=0.3)
    async with servers() as served:
        url = served.open(SqliteStore(directory), settings)
        async with (
            wire(url) as cable,
            Recall.open(cable.address, settings=settings, spool=False) as mine,
            Recall.open(url, settings=settings, spool=False) as others,
            mine.resume(CALL) as holder,
        ):
            await until(lambda: cable.open >= 2)  # its stream, beside what it asks
            await anyio.sleep(0.05)
            yield Two(holder, cable, others, url)


async def test_a_holder_that_is_cut_off_keeps_its_call_and_writes_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two(tmp_path) as both:
        room = Room(lives=True)
        standby = both.standby(room)
        await until(lambda: standby.state is CallState.STANDBY)
        states: list[CallState] = []
        standby.subscribe(states.append)
        both.holder.record_turn("user", "before")
        assert await both.holder.flush(1)
        both.cut_off()
        both.holder.record_turn("user", "in the dark")
        await anyio.sleep(2 * TTL)
        assert both.holder.state is CallState.HOLDING
        assert both.holder.may_speak
        assert not standby.may_speak
        both.cable.heal()
        assert await both.holder.flush(5)
        assert (both.holder.state, both.holder.lost) == (CallState.HOLDING, None)
        assert states == [], "the standby never stirred"
        assert await said(both.others) == ["before", "in the dark"]
        assert caplog.text.count("an agent in the room lives") == 1
        await standby.aclose()


async def test_a_standby_asks_again_every_second_and_takes_the_call_once_nobody_lives(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as both:
        room = Room(lives=True)
        standby = both.standby(room)
        await until(lambda: standby.state is CallState.STANDBY)
        room.asked.clear()
        both.cut_off()
        await until(lambda: len(room.asked) >= 3, 5)
        pauses = [later - sooner for sooner, later in zip(room.asked, room.asked[1:], strict=False)]
        assert all(0.7 < pause < 1.6 for pause in pauses), pauses
        room.lives = False
        assert await standby.holding(1.0 + MARGIN)
        await standby.aclose()


async def test_a_dead_holder_costs_no_more_than_the_grace_for_all_the_asking(
    tmp_path: Path,
) -> None:
    """The question is put as soon as the stream breaks, and its quarter of a second runs during
    the grace."""
    async with two(tmp_path) as both:
        room = Room(lives=False, takes=0.25)
        standby = both.standby(room)
        await until(lambda: standby.state is CallState.STANDBY)
        await anyio.sleep(0.5)
        asked = len(room.asked)
        both.cut_off()
        began = time.monotonic()
        assert await standby.holding(5)
        took = time.monotonic() - began
        print(f"held {1000 * took:.0f} ms after the stream broke")
        assert GRACE - 0.05 < took < GRACE + 0.2
        assert len(room.asked) == asked + 1, "an answer from before it broke is none"
        await standby.aclose()


async def test_a_newcomer_is_a_silent_standby_while_somebody_lives(tmp_path: Path) -> None:
    async with two(tmp_path) as both:
        both.cut_off()
        await anyio.sleep(GRACE + 0.2)
        newcomer, states = asking(both.others, Room(lives=True)), list[CallState]()
        newcomer.subscribe(states.append)
        newcomer.start()
        await anyio.sleep(1.0)
        assert states == [CallState.STANDBY]
        with pytest.raises(Held):
            async with asking(both.others, Room(lives=True), if_held="leave"):
                raise AssertionError("somebody lives")
        async with asking(both.others, Room(lives=False), if_held="leave") as third:
            assert third.state is CallState.HOLDING
        await newcomer.aclose()


async def stuck(_: float) -> None:
    await anyio.sleep_forever()


async def test_a_lease_that_lapsed_is_no_certain_evidence_either(open_recall: OpenRecall) -> None:
    """Embedded, with the lock still held: the holder may be stuck in its store alone."""
    settings = {"lease_ttl": TTL}
    first = open_recall(**settings)
    async with first.resume(CALL) as holder:
        holder._keeper._renew = stuck  # type: ignore[method-assign, assignment]
        holder._keeper.check_now()
        room = Room(lives=True)
        standby = asking(open_recall(**settings), room)
        standby.start()
        await anyio.sleep(TTL + 1.0)
        assert standby.state is CallState.STANDBY
        assert holder.may_speak
        room.lives = False
        assert await standby.holding(1.5)
        await standby.aclose()


@pytest.mark.parametrize("how", ["released", "dead"])
async def test_certain_evidence_waits_for_no_answer(
    open_recall: OpenRecall, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "ASK_SECONDS", 5.0)
    recall, other = open_recall(), open_recall()
    first = recall.resume(CALL)
    first.start()
    assert await first.holding(2)
    room = Room(lives=True, takes=30)
    standby = asking(other, room)
    standby.start()
    await until(lambda: standby.state is CallState.STANDBY)
    began = time.monotonic()
    if how == "released":
        await first.aclose()
    else:
        assert first._task is not None
        first._keeper.become(CallState.READ_ONLY)  # nothing is released: its lock is let go
        await first.aclose()
    assert await standby.holding(2)
    assert time.monotonic() - began < 2
    await standby.aclose()


async def test_a_call_that_is_free_is_had_at_once_however_slow_the_room_answers(
    open_recall: OpenRecall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "ASK_SECONDS", 5.0)
    began = time.monotonic()
    async with asking(open_recall(), Room(lives=True, takes=30)):
        assert time.monotonic() - began < 2


async def test_a_release_while_somebody_seems_to_live_is_noticed_at_once(tmp_path: Path) -> None:
    async with two(tmp_path) as both:
        standby = both.standby(Room(lives=True))
        await until(lambda: standby.state is CallState.STANDBY)
        both.cut_off()
        await anyio.sleep(GRACE + 0.3)
        engine_writer, epoch = both.holder.writer, both.holder.epoch
        await both.others._transport.release(CALL, engine_writer, epoch, "handover")
        assert await standby.holding(Settings().follow_interval + MARGIN)
        await standby.aclose()


Failing = Callable[[], Awaitable[bool]]


async def broken_hook() -> bool:
    raise ZeroDivisionError


async def hanging_hook() -> bool:
    await anyio.sleep(60)
    return True


@pytest.mark.parametrize(
    "hook", [Room(lives=True, fails=True).somebody_lives, broken_hook, hanging_hook]
)
async def test_where_nobody_can_say_the_caller_is_not_left_alone_for_long(
    tmp_path: Path, hook: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with two(tmp_path) as both:
        standby = both.others.resume(CALL)
        standby.ask_first(hook)
        standby.start()
        await until(lambda: standby.state is CallState.STANDBY)
        both.cut_off()
        began = time.monotonic()
        assert await standby.holding(6)
        assert 1.5 < time.monotonic() - began < 4.5
        await standby.aclose()
