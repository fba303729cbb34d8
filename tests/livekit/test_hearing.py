"""What the caller said into the gap is heard by the new session, once, before what is said now."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from livekit import rtc

from recall_livekit import Briefing, Turn
from recall_livekit.livekit.sound.hearing import HeardAgain, heard_until, without_silence
from recall_livekit.livekit.sound.ring import SAMPLE_RATE, CallerEar, Ring

from .desk import AGENT, CALLER, Ear, FakeRoom, Microphone, Publication, Somebody
from .line import until

pytestmark = pytest.mark.anyio
LOUD = 1_000
STEP = SAMPLE_RATE // 20  # samples in 50 ms


def frame(first: int, count: int = STEP, rate: int = SAMPLE_RATE, channels: int = 1) -> Any:
    """Samples that count on from `first`, all of them loud, so that a seam can be seen."""
    samples = (LOUD + np.arange(first, first + count)).astype(np.int16)
    data = np.repeat(samples, channels).tobytes()
    return rtc.AudioFrame(data, rate, channels, count)


def numbers(frames: list[rtc.AudioFrame]) -> list[int]:
    data = b"".join(bytes(one.data.cast("b")) for one in frames)
    return [int(sample) - LOUD for sample in np.frombuffer(data, np.int16)]


class Session:
    """A session, as far as its input looks at it."""

    def __init__(self, linked: str | None = None) -> None:
        self._linked = linked

    @property
    def room_io(self) -> Any:
        if self._linked is None:
            raise RuntimeError("the AgentSession was not started with a room")
        linked = type("Linked", (), {"identity": self._linked})()
        return type("RoomIO", (), {"linked_participant": linked})()


def heard_again(
    microphone: Microphone, ear: Ear, since: float, session: Session | None = None
) -> HeardAgain:
    return HeardAgain(microphone, cast("Any", ear), since, cast("Any", session or Session()))


def kept(ear: Ear, until_: float, seconds: float) -> None:
    """Let the ear have heard samples that count up to the time `until_`, in frames of 50 ms."""
    count = int(seconds * 20)
    for one in range(count):
        ear.ring.add(frame(one * STEP), until_ - (count - 1 - one) * 0.05)


async def take(hearing: HeardAgain, count: int) -> list[rtc.AudioFrame]:
    async with asyncio.timeout(5):
        return [await anext(hearing) for _ in range(count)]


# --- the ring ---------------------------------------------------------------------------------


def test_a_ring_keeps_the_last_seconds_and_no_more() -> None:
    ring = Ring(1.0)
    for one in range(100):
        ring.add(frame(one), 1000.0 + one * 0.05)
    assert len(ring.between(0.0, 2000.0)) == 2 * SAMPLE_RATE


def test_a_ring_is_cut_to_the_sample() -> None:
    ear = Ear()
    kept(ear, 1000.0, 1.0)
    assert numbers([_frame(ear.ring.between(999.5, 999.75))]) == list(
        range(SAMPLE_RATE // 2, SAMPLE_RATE * 3 // 4)
    )
    assert ear.ring.between(1000.0, 1001.0) == b""


def test_frames_that_a_busy_loop_took_in_late_are_where_they_were() -> None:
    ring = Ring(10.0)
    for one in range(20):
        late = 12 <= one < 18  # six frames at once, when the last of them was due
        ring.add(frame(one * STEP), 1000.0 + 0.05 * (17 if late else one))
    assert numbers([_frame(ring.between(0.0, 1000.725))]) == list(range(15 * STEP + STEP // 2))
    ring.add(frame(0), 1060.0)  # the caller was on mute for a minute
    assert len(ring.between(1000.0, 1001.0)) == 2 * 19 * STEP


def _frame(samples: bytes) -> rtc.AudioFrame:
    return rtc.AudioFrame(samples, SAMPLE_RATE, 1, len(samples) // 2)


def test_silence_before_the_first_sound_is_left_out_but_for_a_little() -> None:
    quiet, loud = bytes(2 * 5 * SAMPLE_RATE), bytes(frame(0).data.cast("b"))
    shortened = without_silence(quiet + loud)
    assert len(shortened) == 2 * (int(0.3 * SAMPLE_RATE)) + len(loud)
    assert shortened.endswith(loud)
    assert without_silence(quiet) == without_silence(b"") == b""


# --- from where -------------------------------------------------------------------------------


def said(*turns: tuple[str, float]) -> Briefing:
    return Briefing(
        call_id="room",
        turns=tuple(Turn(role=cast("Any", role), content="x", at=at) for role, at in turns),
    )


def test_it_is_heard_again_from_the_last_turn_of_the_caller_on() -> None:
    assert heard_until(said(("user", 10.0), ("user", 20.0), ("assistant", 25.0)), 30.0) == 20.0
    assert heard_until(said(("assistant", 25.0)), 30.0) == 0.0
    assert heard_until(said(("user", 99.0)), 30.0) == 30.0, "the holder's clock is ahead of ours"


# --- the seam ---------------------------------------------------------------------------------


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time as the seam sees it."""
    clock = SimpleNamespace(at=1000.0)
    clock.time = lambda: clock.at
    monkeypatch.setattr("recall_livekit.livekit.sound.hearing.time", clock)
    return clock


async def test_nothing_is_left_out_and_nothing_is_heard_twice(now: SimpleNamespace) -> None:
    microphone, ear = Microphone(), Ear()
    hearing = heard_again(microphone, ear, 999.5)
    kept(ear, 1000.0, 1.0)
    await asyncio.sleep(0.01)
    for one in (20, 21, 22):  # the ear goes on until the microphone is live
        ear.ring.add(frame(one * STEP), 1000.0 + 0.05 * (one - 19))
    now.at = 1000.2
    microphone.frames.put_nowait(frame(999))  # late: the second one tells when it began, at 1000.07
    await asyncio.sleep(0.01)
    now.at = 1000.17
    microphone.frames.put_nowait(frame(999 + STEP))
    found = numbers(await take(hearing, 31))
    live = found.index(999)
    assert found[0] == SAMPLE_RATE // 2
    assert found[:live] == list(range(SAMPLE_RATE // 2, SAMPLE_RATE + SAMPLE_RATE * 7 // 100))
    assert found[live:] == list(range(999, 999 + 2 * STEP))
    assert ear.closed


async def test_frames_that_waited_in_the_source_are_as_old_as_they_are(
    now: SimpleNamespace,
) -> None:
    """A session may keep the caller's stream waiting (for its pre-connect buffer, 3 s)."""
    microphone, ear = Microphone(), Ear()
    kept(ear, 1000.0, 1.0)
    for one in range(10, 20):  # the last half second, at once
        microphone.frames.put_nowait(frame(one * STEP))
    hearing = heard_again(microphone, ear, 999.2)
    found = numbers(await take(hearing, 15 + 10))
    assert found == list(range(SAMPLE_RATE // 5, SAMPLE_RATE))


async def test_it_is_played_faster_than_real_time_in_small_frames() -> None:
    microphone, ear = Microphone(), Ear()
    began = time.time()
    kept(ear, began, 2.0)
    hearing = heard_again(microphone, ear, began - 2.0)
    microphone.frames.put_nowait(frame(0))
    started = time.monotonic()
    replayed = await take(hearing, 95)
    took = time.monotonic() - started
    assert max(one.duration for one in replayed) <= 0.02
    assert 0.1 < took < 1.0


async def test_what_follows_is_the_source_itself() -> None:
    microphone, ear = Microphone(), Ear()
    hearing = heard_again(microphone, ear, 0.0)
    for one in range(3):
        microphone.frames.put_nowait(frame(one * STEP))
    assert numbers(await take(hearing, 3))[::STEP] == [0, STEP, 2 * STEP]
    microphone.frames.put_nowait(frame(3 * STEP))
    assert numbers(await take(hearing, 1))[0] == 3 * STEP
    microphone.frames.put_nowait(None)
    with pytest.raises(StopAsyncIteration):
        await anext(hearing)


async def test_a_source_that_ends_at_once_ends_it() -> None:
    microphone, ear = Microphone(), Ear()
    microphone.frames.put_nowait(None)
    hearing = heard_again(microphone, ear, 0.0)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(hearing), 2)
    assert ear.closed


async def test_a_session_that_changes_its_mind_while_it_listens_loses_no_frame() -> None:
    microphone, ear = Microphone(), Ear()
    hearing = heard_again(microphone, ear, 0.0)
    for _ in range(2):  # as LiveKit does when the input is switched off and on
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(hearing), 0.05)
    microphone.frames.put_nowait(frame(0))
    await take(hearing, 1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(hearing), 0.05)
    microphone.frames.put_nowait(frame(7))
    assert numbers(await take(hearing, 1))[0] == 7


@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (48_000, 2)])
async def test_it_comes_in_the_sources_own_format(rate: int, channels: int) -> None:
    microphone, ear = Microphone(), Ear()
    began = time.time()
    kept(ear, began, 1.0)
    hearing = heard_again(microphone, ear, began - 1.0)
    microphone.frames.put_nowait(frame(0, rate // 20, rate, channels))
    replayed = await take(hearing, 40)
    assert {(one.sample_rate, one.num_channels) for one in replayed} == {(rate, channels)}
    seconds = sum(one.duration for one in replayed)
    assert seconds == pytest.approx(40 * 0.02, abs=0.05)


async def test_another_callers_words_are_not_put_into_this_ones_mouth() -> None:
    microphone, ear = Microphone(), Ear()
    kept(ear, time.time(), 1.0)
    hearing = heard_again(microphone, ear, 0.0, Session(linked="somebody else"))
    microphone.frames.put_nowait(frame(5))
    assert numbers(await take(hearing, 1))[0] == 5


async def test_closed_before_anything_was_heard_it_leaves_nothing_behind() -> None:
    ear = Ear()
    hearing = heard_again(Microphone(), ear, 0.0)
    await asyncio.sleep(0)
    await hearing.aclose()
    assert ear.closed
    assert not [task for task in asyncio.all_tasks() if "recall" in task.get_name()]


# --- the ear in a room ------------------------------------------------------------------------


class Stream:
    """The caller's track as it is read."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()
        self.closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        return type("Event", (), {"frame": await self.frames.get()})()

    async def aclose(self) -> None:
        self.closed = True


async def test_an_ear_listens_to_the_callers_microphone_and_to_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams: list[Stream] = []

    def from_track(**_: object) -> Stream:
        streams.append(Stream())
        return streams[-1]

    monkeypatch.setattr(rtc.AudioStream, "from_track", from_track)
    agents, screen, microphone = Publication(), Publication(4), Publication()
    caller = Somebody("anna", CALLER, screen, microphone)
    room = FakeRoom(Somebody("agent", AGENT, agents), caller)
    ear = CallerEar(cast("Any", room), 10.0)
    assert [one.subscribed for one in (agents, screen, microphone)] == [False, False, True]
    room.emit("track_subscribed", object(), microphone, caller)
    await until(lambda: streams)
    streams[0].frames.put_nowait(frame(0))
    await until(lambda: ear.ring.between(0.0, time.time() + 1))
    assert ear.identity == "anna"

    other = Somebody("ben", CALLER, Publication())
    room.remote_participants["ben"] = other
    room.emit("track_published", other.track_publications[0], other)
    assert not other.track_publications[0].subscribed, "one caller at a time"

    del room.remote_participants["anna"]
    room.emit("participant_disconnected", caller)
    assert other.track_publications[0].subscribed
    assert ear.ring.between(0.0, time.time() + 1) == b""
    await ear.aclose()
    assert streams[0].closed


@pytest.mark.parametrize("later", [True, False], ids=["comes later", "is there"])
async def test_an_ear_prefers_the_recorded_caller(
    monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    streams: list[Stream] = []

    def from_track(**_: object) -> Stream:
        streams.append(Stream())
        return streams[-1]

    monkeypatch.setattr(rtc.AudioStream, "from_track", from_track)
    ben, anna = Somebody("ben", CALLER, Publication()), Somebody("anna", CALLER, Publication())
    anna.attributes["sip.phoneNumber"] = "+4930123"
    room = FakeRoom(*([ben] if later else [ben, anna]))
    ear = CallerEar(cast("Any", room), 10.0)
    room.emit("track_subscribed", object(), ben.track_publications[0], ben)
    await until(lambda: streams)
    streams[0].frames.put_nowait(frame(0))
    await until(lambda: ear.ring.between(0.0, time.time() + 1))
    assert ear.identity == "ben", "nobody said who calls"

    ear.prefer("+4930123")
    if later:
        assert ear.identity == "ben", "somebody is heard, whoever it is"
        room.remote_participants["anna"] = anna
        room.emit("track_published", anna.track_publications[0], anna)
    assert anna.track_publications[0].subscribed
    assert ear.ring.between(0.0, time.time() + 1) == b"", "what another said is forgotten"
    room.emit("track_subscribed", object(), anna.track_publications[0], anna)
    assert ear.identity == "anna"
    await ear.aclose()
