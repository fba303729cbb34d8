"""What was heard of a turn; words of it that come late are no words of the next one."""

import asyncio
import time
from typing import Any

import pytest
from livekit import rtc
from livekit.agents.types import TimedString
from livekit.agents.voice import io

from recall_livekit.livekit.speech import playhead
from recall_livekit.livekit.speech.markup import letters, said_part, visible
from recall_livekit.livekit.speech.playhead import Playhead
from recall_livekit.livekit.speech.spoken import TIMED, SpokenText
from recall_livekit.livekit.speech.word_times import ShownWords, SpokenWords

from ..conftest import OpenRecall
from .line import Line, Speaker, until
from .test_agent import Support

pytestmark = pytest.mark.anyio


class Subtitles(io.TextOutput):
    def __init__(self) -> None:
        super().__init__(label="Subtitles", next_in_chain=None)
        self.shown: list[str] = []

    async def capture_text(self, text: str) -> None:
        self.shown.append(text)

    def flush(self) -> None:
        self.shown.append("|")


class Session:
    """As much of a session as is looked at."""

    def __init__(self, transcription: io.TextOutput) -> None:
        self.output = self
        self.transcription = transcription


async def test_a_word_after_its_turn_was_recorded_does_not_begin_the_next() -> None:
    subtitles, told = Subtitles(), list[str]()
    spoken = SpokenText(told.append)
    assert spoken.attach(Session(subtitles))  # type: ignore[arg-type]
    await subtitles.capture_text("please tell me your ")
    spoken.begin_turn()  # its turn is recorded: the playback was finished
    await subtitles.capture_text("number. ")
    subtitles.flush()
    await subtitles.capture_text("Thanks ")
    assert told == ["please tell me your ", "Thanks "]
    assert "".join(subtitles.shown) == "please tell me your number. |Thanks "


async def test_a_turn_recorded_after_its_last_word_costs_the_next_one_nothing() -> None:
    subtitles, told = Subtitles(), list[str]()
    spoken = SpokenText(told.append)
    spoken.attach(Session(subtitles))  # type: ignore[arg-type]
    await subtitles.capture_text("one ")
    subtitles.flush()
    spoken.begin_turn()
    await subtitles.capture_text("two ")
    assert told == ["one ", "two "]


async def test_a_reply_that_was_never_heard_is_no_part_of_the_next_one() -> None:
    """LiveKit makes no turn of it, though its words were generated."""
    subtitles = Subtitles()
    spoken = SpokenText(lambda _: None)
    spoken.attach(Session(subtitles))  # type: ignore[arg-type]
    await subtitles.capture_text("this was interrupted before its first sound. ")
    spoken.forget_unheard()
    await subtitles.capture_text("yes. ")
    assert not spoken.goes_on("yes.")


async def test_an_agent_that_listens_again_has_forgotten_what_was_not_heard(
    open_recall: OpenRecall,
) -> None:
    agent = Support(open_recall())
    async with Line(agent, lambda _: "one two three.").open() as line:
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening")
        spoken = agent._live._observer.spoken  # type: ignore[union-attr]
        await line.session.output.transcription.capture_text("interrupted before it was heard")  # type: ignore[union-attr]
        assert spoken.goes_on("")
        line.session._update_agent_state("thinking")
        line.session._update_agent_state("listening")
        assert not spoken.goes_on("")


# --- the place in the sound ---------------------------------------------------------------------


class Clock:
    """The time of the playhead, set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + 5e8


class Sound(io.AudioOutput):
    """Takes frames; a test says when they are played."""

    def __init__(self) -> None:
        super().__init__(label="sound", capabilities=io.AudioOutputCapabilities(pause=True))

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)

    def flush(self) -> None:
        super().flush()

    def clear_buffer(self) -> None:
        """Nothing is kept."""


async def give(sound: Sound, seconds: float) -> None:
    samples = round(seconds * 1000)
    await sound.capture_frame(rtc.AudioFrame(bytes(2 * samples), 1000, 1, samples))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(playhead, "time", made)
    return made


@pytest.fixture
def head() -> Playhead:
    return Playhead(lambda frame: None, lambda event: None)


async def test_what_was_heard_is_the_time_since_the_sound_began(
    clock: Clock, head: Playhead
) -> None:
    head.follow(sound := Sound())
    await give(sound, 1.0)
    clock.now += 5
    assert (head.position, head.is_playing) == (0.0, False), "handed over, and not played"
    sound.on_playback_started(created_at=clock.time() - 0.1)
    assert head.position == pytest.approx(0.1)
    clock.now += 0.5
    assert head.position == pytest.approx(0.6)
    clock.now += 5
    assert head.position == pytest.approx(1.0), "there was no more"
    sound.flush()
    sound.on_playback_finished(playback_position=1.0, interrupted=False)
    assert (head.position, head.is_playing) == (0.0, False)


async def test_a_gap_in_the_sound_is_not_heard(clock: Clock, head: Playhead) -> None:
    head.follow(sound := Sound())
    await give(sound, 1.0)
    sound.on_playback_started(created_at=clock.time())
    clock.now += 3
    await give(sound, 1.0)
    clock.now += 0.25
    assert head.position == pytest.approx(1.25)
    assert head.elapsed == pytest.approx(3.25)


async def test_a_pause_is_not_heard(clock: Clock, head: Playhead) -> None:
    head.follow(sound := Sound())
    await give(sound, 5.0)
    sound.on_playback_started(created_at=clock.time())
    clock.now += 1
    sound.pause()
    clock.now += 7
    assert head.position == pytest.approx(1.0)
    sound.resume()
    clock.now += 1
    assert head.position == pytest.approx(2.0)
    assert head.elapsed == pytest.approx(2.0)


async def test_a_sound_that_is_paused_before_it_begins_is_not_heard(
    clock: Clock, head: Playhead
) -> None:
    head.follow(sound := Sound())
    sound.pause()
    await give(sound, 5.0)
    sound.on_playback_started(created_at=clock.time())
    clock.now += 3
    assert head.position == 0.0
    sound.resume()
    clock.now += 1
    assert head.position == pytest.approx(1.0)


async def test_a_clock_that_jumps_moves_nothing(clock: Clock, head: Playhead) -> None:
    head.follow(sound := Sound())
    await give(sound, 5.0)
    sound.on_playback_started(created_at=clock.time() - 3600)
    assert head.position <= 1.0


# --- words and their places ---------------------------------------------------------------------


def timed(*pieces: tuple[str, float | None, float | None]) -> SpokenWords:
    words = SpokenWords()
    for text, start, end in pieces:
        words.add(text, start, end, letters(words.text + text))
    return words


def test_a_word_counts_once_it_has_ended() -> None:
    words = timed(("one ", 0.0, 0.5), ("two ", 0.5, 1.0), ("three", 1.0, 1.5))
    assert [words.bounds(at) for at in (0.4, 0.5, 0.9, 1.2)] == [(0, 0), (3, 3), (3, 3), (6, 6)]
    assert words.bounds(2.0) == (11, float("inf"))


def test_a_voice_that_tells_when_its_sentences_begin_sets_bounds() -> None:
    words = timed(("one two. ", 0.0, None), ("three four.", 1.0, None))
    assert words.bounds(0.5)[0] == 0
    assert words.bounds(1.5)[0] == letters("one two.")
    late = timed(("one two. ", 0.0, None), ("three four.", 9.0, None))
    assert late.bounds(0.5)[1] == letters("one two."), "the second has not begun"


def test_a_word_that_is_shown_is_over_when_the_next_is_shown() -> None:
    words = ShownWords()
    words.add("one ", 0.1, 0)
    words.add("two ", 0.3, 3)
    assert [words.heard(at) for at in (0.0, 0.2, 0.3, 9.0)] == [0, 0, 3, 3]


@pytest.mark.parametrize(
    ("text", "count", "said"),
    [
        ("one two three", 0, ""),
        ("one two three", 3, "one "),
        ("one, two", 3, "one, "),
        ("that is $20", 6, "that is "),
        ("twenty-one", 6, "twenty-"),
        ("one", 9, "one"),
        ("好的吗", 2, "好的"),
        ("", 5, ""),
    ],
)
def test_the_part_of_a_text_that_was_said(text: str, count: int, said: str) -> None:
    assert said_part(text, count) == said


def test_tags_are_not_visible_whole_or_begun() -> None:
    tag = '<expr type="sound" label="a laugh"/>'
    whole = f"well {tag} yes 3 < 5"
    assert visible(whole).split() == ["well", "yes", "3", "<", "5"]
    for end in range(len("well "), len("well ") + len(tag) + 1):
        assert visible(whole[:end]).strip() == "well"


# --- both together ------------------------------------------------------------------------------


class Voiced:
    """As much of a session with a voice as is looked at."""

    def __init__(self, sound: Sound, transcription: io.TextOutput) -> None:
        self.output = self
        self.audio = sound
        self.audio_enabled = True
        self.transcription = transcription


async def told_beside(pieces: list[TimedString], generated: str) -> str:
    """What is known to be heard 0.6 s into a sound that tells these times beside it."""
    sound, subtitles = Sound(), Subtitles()
    spoken = SpokenText(lambda _: None)
    spoken.attach(Voiced(sound, subtitles))  # type: ignore[arg-type]
    await subtitles.capture_text(generated)
    frame = rtc.AudioFrame(bytes(4000), 1000, 1, 2000)
    frame.userdata[TIMED] = pieces
    await sound.capture_frame(frame)
    sound.on_playback_started(created_at=time.time() - 0.6)
    heard = spoken.heard
    sound.flush()
    sound.on_playback_finished(playback_position=2.0, interrupted=False)
    await asyncio.sleep(0)
    return heard


async def test_times_beside_the_sound_count_while_they_are_of_the_same_words() -> None:
    times: list[Any] = [
        TimedString("I ", start_time=0.0, end_time=0.2),
        TimedString("owe ", start_time=0.2, end_time=0.5),
        TimedString("you", start_time=0.5, end_time=0.9),
    ]
    assert await told_beside(times, "I **owe** you") == "I **owe** "
    assert await told_beside(times, "1 owes you") == "", "the voice reads it in its own way"


async def test_outputs_that_are_replaced_are_followed_too() -> None:
    first, second = Sound(), Sound()
    session = Voiced(first, Subtitles())
    told: list[str] = []
    spoken = SpokenText(told.append)
    spoken.attach(session)  # type: ignore[arg-type]
    spoken.attach(session)  # type: ignore[arg-type]
    session.audio, session.transcription = second, Subtitles()
    spoken.attach(session)  # type: ignore[arg-type]
    await session.transcription.capture_text(TimedString("hello", start_time=0.0, end_time=0.2))
    await give(second, 1.0)
    assert spoken.playhead._given == 1.0, "each frame counts once"
    second.on_playback_started(created_at=time.time() - 0.5)
    assert told == ["hello"]
    assert spoken.any_heard
    second.flush()
    second.on_playback_finished(playback_position=1.0, interrupted=False)


class Held(Speaker):
    """Takes no sound until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await self.may.wait()
        await super().capture_frame(frame)


async def test_a_session_that_says_it_listens_as_it_starts_loses_no_first_word(
    open_recall: OpenRecall,
) -> None:
    """`session.start` ends so, though the first words of `on_enter` have come by then."""
    agent, speaker = Support(open_recall()), Held()
    async with Line(agent, lambda _: "one two three four five", speaker=speaker).open() as line:
        spoken = agent._live._observer.spoken  # type: ignore[union-attr]
        await until(lambda: spoken.goes_on("one"))
        line.session._update_agent_state("listening")
        speaker.may.set()
        await until(lambda: "two" in spoken.heard)
        assert spoken.heard.startswith("one two")


async def test_the_words_of_a_reply_that_never_began_are_no_part_of_the_next_ones_place() -> None:
    sound, subtitles = Sound(), Subtitles()
    spoken = SpokenText(lambda _: None)
    spoken.attach(Voiced(sound, subtitles))  # type: ignore[arg-type]
    await subtitles.capture_text(TimedString("never", start_time=0.0, end_time=0.2))
    subtitles.flush()
    await subtitles.capture_text(TimedString("one", start_time=0.0, end_time=0.2))
    await subtitles.capture_text(TimedString(" two", start_time=0.2, end_time=0.9))
    await give(sound, 1.0)
    sound.on_playback_started(created_at=time.time() - 0.5)
    assert spoken.heard.strip() == "one"
    sound.flush()
    sound.on_playback_finished(playback_position=1.0, interrupted=False)
