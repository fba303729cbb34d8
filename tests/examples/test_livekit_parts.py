"""The parts of the demo that is played on a real LiveKit server, each without one."""

import asyncio
import time
import wave
from pathlib import Path

import livekit_recovery
import numpy as np
import pytest
from livekit import rtc
from livekit.agents import llm, stt
from livekit.agents.types import TimedString
from livekit_demo import script
from livekit_demo.ears import LengthSTT
from livekit_demo.espeak import Espeak, Samples
from livekit_demo.house import together
from livekit_demo.recording import SAMPLE_RATE, Recording, Track
from livekit_demo.server import livekit_server
from livekit_demo.story import Outcome, Part, faults
from livekit_demo.voice import EspeakTTS
from recovery.process import DemoFailed
from recovery.strips import KILLED, SILENT, Strip, Strips

pytestmark = pytest.mark.anyio

LOUD = np.full(SAMPLE_RATE // 100, 3000, np.int16)
QUIET = np.zeros(SAMPLE_RATE // 100, np.int16)


# --- the voice ----------------------------------------------------------------------------------


def test_the_library_tells_where_its_words_begin() -> None:
    speech = Espeak().speak(script.CONFIRM)
    assert " ".join(word.text for word in speech.words) == script.CONFIRM
    starts = [word.start for word in speech.words]
    assert starts == sorted(set(starts))
    assert 3.0 < speech.seconds < 6.0
    parts = speech.parts()
    assert np.array_equal(np.concatenate([samples for _, samples in parts]), speech.samples)
    assert all(loudest(samples) > 1000 for _, samples in parts)


def test_voices_differ_and_an_unknown_one_is_refused() -> None:
    one, other = (Espeak(name).speak("Hello") for name in ("en-us+f3", "en-us+m3"))
    assert not np.array_equal(one.samples[:4000], other.samples[:4000])
    with pytest.raises(ValueError, match="no voice 'nobody'"):
        Espeak("nobody").speak("Hello")


async def test_it_speaks_at_the_pace_of_speech_with_its_words() -> None:
    tts = EspeakTTS(script.AGENT_VOICE, lead=0.2)
    began, words, seconds, first = time.monotonic(), list[TimedString](), 0.0, 0.0
    async with tts.stream() as stream:
        for token in ("Hello, ", "the line ", "dropped. ", "Once ", "more?"):
            stream.push_text(token)
        stream.end_input()
        async for event in stream:
            first = first or time.monotonic() - began
            seconds += event.frame.duration
            words += event.frame.userdata.get("lk.timed_transcripts", [])
    took = time.monotonic() - began
    assert first < 0.5
    assert seconds > 1.0
    assert seconds - 0.2 - 0.1 < took < seconds + 1.0
    assert "".join(words).split() == ["Hello,", "the", "line", "dropped.", "Once", "more?"]
    times = [word.start_time for word in words if isinstance(word.start_time, float)]
    assert len(times) == len(words)
    assert times == sorted(times)


# --- the ears -----------------------------------------------------------------------------------


async def heard(ears: LengthSTT, samples: Samples) -> list[str]:
    async with ears.stream() as stream:
        for at in range(0, len(samples), 480):
            part = samples[at : at + 480]
            stream.push_frame(rtc.AudioFrame(part.tobytes(), SAMPLE_RATE, 1, len(part)))
        stream.end_input()
        final = stt.SpeechEventType.FINAL_TRANSCRIPT
        return [event.alternatives[0].text async for event in stream if event.type is final]


async def test_the_ears_tell_the_callers_sentences_apart() -> None:
    voice = script.CALLER_VOICE
    ears = LengthSTT(voice, script.CALLER_SENTENCES)
    silence = np.zeros(SAMPLE_RATE, np.int16)
    said = [silence]
    for sentence in script.CALLER_SENTENCES:
        at = np.linspace(0, 1, round(voice.speak(sentence).seconds * SAMPLE_RATE))
        samples = voice.speak(sentence).samples
        resampled = np.interp(at, np.linspace(0, 1, len(samples)), samples)
        said += [resampled.astype(np.int16), silence]
    assert await heard(ears, np.concatenate(said)) == list(script.CALLER_SENTENCES)


async def test_silence_is_no_sentence() -> None:
    ears = LengthSTT(script.CALLER_VOICE, script.CALLER_SENTENCES)
    assert await heard(ears, np.zeros(3 * SAMPLE_RATE, np.int16)) == []


# --- the recording ------------------------------------------------------------------------------


def play(track: Track, *pieces: tuple[float, Samples], frames: int) -> None:
    """Add frames of 10 ms from a second on, as a room hands them over."""
    for at, frame in pieces:
        for one in range(frames):
            track.add(at + 0.01 * (one + 1), frame)


def test_the_silence_is_where_it_was() -> None:
    track = Recording().track("worker 1")
    play(track, (1.0, LOUD), (2.0, QUIET), (3.0, LOUD), frames=100)
    assert track.last_sound() == pytest.approx(4.0, abs=0.011)
    assert track.first_sound(after=0.0) == pytest.approx(1.0, abs=0.011)
    assert track.first_sound(after=2.0) == pytest.approx(3.0, abs=0.011)
    assert Track("nobody").last_sound() is None
    assert Track("nobody").first_sound(after=0.0) is None


def test_a_stalled_loop_makes_no_gap_but_a_real_one_is_kept() -> None:
    track = Track("worker 1")
    for late in (0.0, 0.15, 0.15, 0.15, 0.0):  # handed over late, all the same one after another
        track.add(1.0 + late, LOUD)
    assert len(track.audible()) == 5
    assert np.ptp(track.audible()) == pytest.approx(0.04)
    track.add(2.0, LOUD)
    assert track.last_sound() == pytest.approx(2.0, abs=0.011)


def test_the_wav_has_the_caller_on_the_left(tmp_path: Path) -> None:
    recording = Recording()
    recording.began_at -= 3.0
    play(recording.track("caller", ours=True), (0.0, LOUD), frames=100)
    play(recording.track("worker 1"), (1.0, LOUD), frames=100)
    recording.write(tmp_path / "call.wav")
    with wave.open(str(tmp_path / "call.wav")) as file:
        assert (file.getnchannels(), file.getframerate()) == (2, SAMPLE_RATE)
        stereo = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
    assert len(stereo) / SAMPLE_RATE == pytest.approx(3.0, abs=0.2)
    (left, right), (left_after, right_after) = (
        stereo[SAMPLE_RATE // 2],
        stereo[SAMPLE_RATE * 3 // 2],
    )
    assert left > right > 0
    assert right_after > left_after > 0
    assert not stereo[-100:].any()


# --- what is shown ------------------------------------------------------------------------------


def test_a_strip_shows_the_kill_and_the_silence_after_it() -> None:
    loudness = [3000.0] * 450
    strips = Strips([], start=0.0, span=10.0)
    alone = strips.drawn(Strip("w", "agent", loudness, killed_at=4.5, silent_until=8.0), 10)
    assert alone[4:] == KILLED + SILENT * 3 + "  "
    assert " " not in alone[:4]
    assert SILENT not in strips.drawn(Strip("w", "agent", loudness, killed_at=4.5), 10)
    assert strips.drawn(Strip("w", "agent", []), 10) == " " * 10


def test_what_is_louder_is_drawn_higher() -> None:
    strips = Strips([], start=0.0, span=3.0)
    loudness = [200.0] * 100 + [1000.0] * 100 + [9000.0] * 100
    low, middle, high = list(strips.drawn(Strip("w", "agent", loudness), 3))
    assert low < middle < high


@pytest.mark.parametrize(("zero", "marks"), [(0.0, "0s 2s 4s 6s 8s"), (4.0, "-4s -2s 0s +2s +4s")])
def test_the_ruler_counts_from_zero(zero: float, marks: str) -> None:
    ruler = Strips([], start=0.0, span=10.0, zero=zero).ruler(50)
    assert ruler.split() == marks.split()
    assert ruler.index(marks.split()[2]) == 20


# --- what is checked ----------------------------------------------------------------------------

GOOD = f"{script.RESUMED} Friday at seven, for Ada. {script.QUESTION} {script.BOOKED}"


def outcome(**changes: object) -> Outcome:
    made = Outcome(Part("watched", "2. With us", "", limit=1.0), "room")
    made.successor, made.silence, made.after = "worker 2", 0.4, GOOD
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_call_that_was_resumed_has_no_fault() -> None:
    assert faults(outcome()) == []
    assert faults(outcome(silence=-0.05)) == []
    alone = Part("alone", "1. LiveKit alone", "")
    assert faults(outcome(part=alone, successor=None, silence=None, after="")) == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"successor": None, "silence": None}, "nobody spoke within 8 s"),
        ({"silence": 1.2}, "1200 ms of silence: more than 1000 ms"),
        ({"after": f"{script.GREETING} {GOOD}"}, "greeted again"),
        ({"after": script.RESUMED}, "never said 'Ada'"),
        ({"after": GOOD.replace(script.BOOKED, "")}, "never said 'It is booked"),
        ({"part": Part("alone", "1. LiveKit alone", "")}, "LiveKit alone brought an agent back"),
    ],
)
def test_what_was_not_as_promised_is_a_fault(changes: dict[str, object], fault: str) -> None:
    assert any(fault in found for found in faults(outcome(**changes)))


def test_two_agents_at_once_are_a_fault() -> None:
    recording = Recording()
    for name in ("worker 1", "worker 2"):
        play(recording.track(name), (0.0, LOUD), frames=60)
    assert faults(outcome(recording=recording)) == ["two agents were heard at once for 0.6 s"]


def conversation(*messages: tuple[llm.ChatRole, str]) -> llm.ChatContext:
    context = llm.ChatContext.empty()
    for role, text in messages:
        context.add_message(role=role, content=text)
    return context


def test_the_model_knows_only_what_it_is_given() -> None:
    told: tuple[llm.ChatRole, str] = ("user", script.ORDER)
    begin: tuple[llm.ChatRole, str] = ("system", "Greet, or go on.")
    cut: tuple[llm.ChatRole, str] = (
        "developer",
        "- You were cut off after saying: Very well: a table for four,",
    )
    assert script.reply(conversation(begin)) == script.GREETING
    assert script.reply(conversation(told)) == script.CONFIRM
    resumed = f"{script.RESUMED} On Friday at seven, for Ada. {script.QUESTION}"
    assert script.reply(conversation(cut, told, begin)) == resumed
    assert script.reply(conversation(told, ("user", script.YES))) == script.BOOKED
    assert script.reply(conversation(("user", script.YES))) == script.CONFIRM


def test_without_a_livekit_server_it_says_where_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LIVEKIT_SERVER_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("recall_livekit.testing.livekit_server.BUILT", tmp_path / "built")
    with pytest.raises(DemoFailed, match="make demo-livekit"):
        livekit_server(tmp_path)
    monkeypatch.setenv("LIVEKIT_SERVER_BIN", str(tmp_path / "nothing"))
    with pytest.raises(DemoFailed, match="is no program"):
        livekit_server(tmp_path)


def test_the_recordings_are_aligned_at_the_kill() -> None:
    recording = Recording()
    recording.began_at -= 12.0
    play(recording.track("worker 1"), (7.0, LOUD), frames=100)
    play(recording.track("worker 2"), (9.0, LOUD), frames=100)
    agent, caller = livekit_recovery.aligned(
        outcome(recording=recording, killed="worker 1", killed_at=8.0, silence=1.0)
    )
    assert agent.killed_at == livekit_recovery.BEFORE_S
    audible = np.flatnonzero(np.array(agent.loudness) > 0) / 100 - livekit_recovery.BEFORE_S
    assert (audible[0], audible[-1]) == pytest.approx((-1.0, 2.0), abs=0.03)
    assert not any(caller.loudness)


async def test_a_failure_is_told_as_it_is_and_ends_the_rest() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise DemoFailed("worker 1 did not start")

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    with pytest.raises(DemoFailed, match="worker 1 did not start"):
        await together(waits(), fails())
    assert ended == ["ended"]


def loudest(samples: Samples) -> int:
    return int(np.abs(samples.astype(np.int32)).max())


async def test_the_voice_leaves_the_loop_free() -> None:
    """Frames come one by one, and making a sentence takes some milliseconds."""
    longest, before = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, before
        while True:
            await asyncio.sleep(0.005)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()

    Espeak().speak("warm")
    watching = asyncio.create_task(watch())
    async with EspeakTTS(script.AGENT_VOICE).stream() as stream:
        stream.push_text(script.BOOKED)
        stream.end_input()
        async for _ in stream:
            pass
    watching.cancel()
    assert longest < 0.1
