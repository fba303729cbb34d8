"""The gate in front of the session's sound."""

from __future__ import annotations

import anyio
import pytest
from livekit import rtc
from livekit.agents.voice import io

from recall_livekit.livekit.sound.gate import AudioGate

pytestmark = pytest.mark.anyio
FRAME = rtc.AudioFrame(bytes(960), 24_000, 1, 480)


class Behind(io.AudioOutput):
    def __init__(self) -> None:
        super().__init__(
            label="behind", capabilities=io.AudioOutputCapabilities(pause=True), sample_rate=24_000
        )
        self.frames = 0
        self.flushed = 0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.frames += 1

    def flush(self) -> None:
        super().flush()
        self.flushed += 1
        self.on_playback_finished(playback_position=0.02 * self.frames, interrupted=False)

    def clear_buffer(self) -> None:
        """Nothing is buffered here."""


class Door:
    def __init__(self, behind: Behind) -> None:
        self.open = True
        self.finished: list[io.PlaybackFinishedEvent] = []
        self.gate = AudioGate(behind, self.heard)
        self.gate.on("playback_finished", self.finished.append)

    async def heard(self) -> bool:
        return self.open


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def door(behind: Behind) -> Door:
    return Door(behind)


async def test_open_it_passes_everything(behind: Behind, door: Door) -> None:
    for _ in range(3):
        await door.gate.capture_frame(FRAME)
    door.gate.flush()
    assert behind.frames == 3
    [event] = door.finished
    assert not event.interrupted


async def test_closed_it_swallows_and_the_session_is_told_that_nothing_was_heard(
    behind: Behind, door: Door
) -> None:
    door.open = False
    await door.gate.capture_frame(FRAME)
    door.gate.flush()
    assert behind.frames == behind.flushed == 0
    event = await door.gate.wait_for_playout()
    assert event.interrupted
    assert event.playback_position == 0.0


async def test_closed_in_mid_sentence_it_swallows_the_rest(behind: Behind, door: Door) -> None:
    await door.gate.capture_frame(FRAME)
    door.open = False
    await door.gate.capture_frame(FRAME)
    door.open = True
    await door.gate.capture_frame(FRAME)
    assert behind.frames == 1, "the middle of a sentence is not taken up again"
    door.gate.flush()
    await door.gate.wait_for_playout()
    await door.gate.capture_frame(FRAME)
    assert behind.frames == 2, "the next one is heard"
    door.gate.flush()


async def test_every_segment_ends_however_the_gate_stood(door: Door) -> None:
    for one in (True, False, True, False, False):
        door.open = one
        await door.gate.capture_frame(FRAME)
        door.gate.flush()
        await door.gate.wait_for_playout()
    assert len(door.finished) == 5


async def test_a_sentence_interrupted_while_it_waits_to_be_heard_ends_all_the_same(
    behind: Behind, door: Door
) -> None:
    wait = anyio.Event()

    async def slow() -> bool:
        await wait.wait()
        return True

    door.gate._heard = slow
    with anyio.move_on_after(0.01):
        await door.gate.capture_frame(FRAME)
    door.gate.flush()
    with anyio.fail_after(1):
        await door.gate.wait_for_playout()
    wait.set()
    await door.gate.capture_frame(FRAME)
    assert behind.frames == 1, "the next one is heard"
    door.gate.flush()
