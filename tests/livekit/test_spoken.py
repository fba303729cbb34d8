"""The words of a turn that come late are no words of the next one."""

import pytest
from livekit.agents.voice import io

from recall_livekit.livekit.spoken import SpokenText

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
