"""Where a sentence ends in the sound, as a voice that times its words tells it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from livekit.agents.types import TimedString

from recall_livekit.livekit.speech.sentences import SentenceTimes, ends_sentence
from recall_livekit.livekit.speech.spoken import SpokenText

from .test_spoken import Session, Subtitles

pytestmark = pytest.mark.anyio

WORDS = ("One ", "two. ", "Three. ", "Four ", "five.")


def told(*words: str, word: float = 0.2) -> SentenceTimes:
    """The times of a voice that takes `word` seconds for each."""
    times, turn = SentenceTimes(), ""
    for number, text in enumerate(words):
        turn += text
        times.add(TimedString(text, start_time=word * number, end_time=word * (number + 1)), turn)
    return times


def begins(times: SentenceTimes, ago: float = 0.0) -> None:
    event: Any = SimpleNamespace(created_at=time.time() - ago)
    times.playback_started(event)


def next_end(times: SentenceTimes) -> tuple[float, str]:
    found = times.next_end()
    assert found is not None
    return round(found[0], 1), found[1]


def test_the_sentence_under_way_ends_when_its_last_word_does() -> None:
    times = told(*WORDS)
    assert times.next_end() is None, "nothing is heard yet"
    begins(times)
    assert next_end(times) == (0.4, "One two. ")
    begins(times, ago=0.5)
    assert next_end(times) == (0.1, "One two. Three. ")
    begins(times, ago=0.7)
    assert times.next_end() is None, "the last one may yet become a number"


def test_each_segment_has_times_of_its_own() -> None:
    times = told("A ", "long ", "story. ")
    begins(times)
    times.flush()
    times.add(TimedString("Yes. ", start_time=0.0, end_time=0.2), "A long story. Yes. ")
    assert next_end(times) == (0.6, "A long story. ")
    begins(times)
    assert next_end(times) == (0.2, "A long story. Yes. ")
    times.clear()
    assert times.next_end() is None


def test_a_voice_that_tells_no_times_is_no_clock() -> None:
    times = SentenceTimes()
    times.add("One two. ", "One two. ")
    begins(times)
    assert times.next_end() is None


@pytest.mark.parametrize(
    ("pieces", "first"),
    [
        (("half past 7.", "30 it", " is. "), "half past 7.30 it is. "),
        (("He said “no.", "” ", "So "), "He said “no.” "),
        (("完了。", "次"), "完了。"),
    ],
)
def test_a_sentence_is_complete_only_when_nothing_can_join_it(
    pieces: tuple[str, ...], first: str
) -> None:
    times = told(*pieces)
    begins(times)
    assert next_end(times)[1] == first


async def test_without_times_a_sentence_ends_a_moment_after_its_last_word_was_told() -> None:
    subtitles = Subtitles()
    spoken = SpokenText(lambda _: None)
    spoken.attach(Session(subtitles))  # type: ignore[arg-type]
    for word in ("all", " ", "is", " ", "done.", " "):
        await anyio.sleep(0.1)
        await subtitles.capture_text(word)
    assert spoken.sentence_left is not None
    assert 0.0 < spoken.sentence_left < 0.2
    await anyio.sleep(0.2)
    assert spoken.sentence_left is None, "the next one has begun"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("It is done.", True),
        ("Is it? ", True),
        ('He said "no!" ', True),
        ("then …", True),
        ("完了しました。", True),
        ("本当ですか？", True),
        ("half past 7.30 is", False),
        ("and then,", False),
        ("", False),
    ],
)
def test_the_ends_of_sentences(text: str, ends: bool) -> None:
    assert ends_sentence(text) is ends
