"""The words of a turn that come late are no words of the next one."""

import pytest
from livekit.agents.voice import io

from recall_livekit.livekit.spoken import SpokenText

from ..conftest import OpenRecall
from .line import Line, until
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
