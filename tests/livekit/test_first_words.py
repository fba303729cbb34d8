"""Recorded first words of a resumed call: heard at once, while the model still thinks."""

from __future__ import annotations

import asyncio
import io
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from recall_livekit import InvalidSettings, RecallAgent, ResumeAudio
from recall_livekit.livekit.sound import first_words
from recall_livekit.livekit.sound.first_words import LONGEST_SECONDS, decoded
from recall_livekit.testing.voices import said

from ..conftest import OpenRecall
from .line import Line, until
from .test_agent import ROOM, earlier_call

pytestmark = pytest.mark.anyio
WORDS = "Sorry, we are back."
RATE = 16_000


def wav(seconds: float = 0.6, *, channels: int = 1, width: int = 2, rate: int = RATE) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as recording:
        recording.setnchannels(channels)
        recording.setsampwidth(width)
        recording.setframerate(rate)
        tone = 8_000 * np.sin(np.arange(int(seconds * rate)) / 9)
        recording.writeframes(np.repeat(tone.astype(np.int16), channels).tobytes())
    return content.getvalue()


class Support(RecallAgent):
    def __init__(self, recall: Any, **options: Any) -> None:
        super().__init__(instructions="Be kind.", resume=ROOM, recall=recall, **options)

    async def on_fresh(self) -> None:
        self.session.say("a greeting")


async def test_they_are_heard_at_once_and_the_models_words_follow(open_recall: OpenRecall) -> None:
    await earlier_call(open_recall)
    agent = Support(open_recall(), resume_audio=wav(), resume_words=WORDS)
    line = Line(agent, lambda _: "for four then")
    line.model.first_delay = 1.0
    async with line.open():
        began = time.monotonic()
        await until(lambda: line.heard)
        assert time.monotonic() - began < 1.0, "before the model could have said anything"
        await until(lambda: "for four then" in line.subtitles.text)
        spoken = line.subtitles.text
        assert spoken.index("Sorry") < spoken.index("for four then")
        [prompt] = line.model.prompts
        told = said(prompt)[-1]
        assert WORDS in told
        assert "Do not apologise again" in told
        await until(lambda: "for four then" in said(line.session.history)[-1])
        assert await agent.call.flush(2)
    recorded = [turn.content.strip() for turn in await open_recall().turns(ROOM)]
    assert recorded == ["a table for four", WORDS, "for four then"]


async def test_the_model_thinks_while_they_are_played(open_recall: OpenRecall) -> None:
    await earlier_call(open_recall)
    line = Line(Support(open_recall(), resume_audio=wav(1.5)))
    async with line.open():
        await until(lambda: line.heard)
        await until(lambda: line.model.prompts, 0.5)
        assert line.speaker.seconds < 1.0


async def test_a_fresh_call_is_greeted_without_them(open_recall: OpenRecall) -> None:
    line = Line(Support(open_recall(), resume_audio=wav(), resume_words=WORDS))
    async with line.open():
        await until(lambda: "a greeting" in line.subtitles.text)
        assert "Sorry" not in line.subtitles.text


async def test_they_are_paced_in_small_frames() -> None:
    audio = ResumeAudio(wav(0.6))
    began = time.monotonic()
    frames = [frame async for frame in audio.frames()]
    took = time.monotonic() - began
    assert took > 0.3, "much at once would block the session's event loop"
    assert {frame.samples_per_channel for frame in frames} == {RATE // 50}
    assert sum(frame.duration for frame in frames) == pytest.approx(audio.seconds)
    assert b"".join(bytes(frame.data.cast("b")) for frame in frames) == wav(0.6)[44:]


async def test_a_stereo_recording_becomes_one_voice() -> None:
    one, two = ResumeAudio(wav(0.1)), ResumeAudio(wav(0.1, channels=2))
    assert one.seconds == two.seconds
    data = [b"".join([bytes(f.data.cast("b")) async for f in a.frames()]) for a in (one, two)]
    assert data[0] == data[1]


def test_a_file_is_decoded_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sorry.wav"
    path.write_bytes(wav())
    reading = Mock(wraps=first_words._content)
    monkeypatch.setattr(first_words, "_content", reading)
    assert decoded(path) is decoded(str(path))
    assert reading.call_count == 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: b"not a wav at all", "is not a WAV"),
        (lambda: b"", "is not a WAV"),
        (lambda: wav()[:30], "is not a WAV"),
        (lambda: wav(width=1), "8 bit"),
        (lambda: wav(channels=4), "4 channels"),
        (lambda: wav(rate=96_000), "96000 Hz"),
        (lambda: wav(0), "must be above 0"),
        (lambda: wav(LONGEST_SECONDS + 1, rate=8_000), "at most 30 s"),
        (lambda: "no/such/file.wav", "cannot be read"),
        (lambda: "nul\0byte", "cannot be read"),
        (lambda: 7, "not int"),
    ],
)
def test_what_cannot_be_played_is_refused_at_construction(
    make: Callable[[], Any], told: str
) -> None:
    with pytest.raises(InvalidSettings, match=told):
        decoded(make())


async def test_the_agent_refuses_it_before_there_is_a_call(open_recall: OpenRecall) -> None:
    recall = open_recall()
    with pytest.raises(InvalidSettings):
        Support(recall, resume_audio=b"junk")
    assert [call async for call in recall.calls()] == []
    assert not [task for task in asyncio.all_tasks() if "recall" in task.get_name()]
