"""Killed in mid-sentence: the words known are those that were heard, and never one that was not."""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from livekit import rtc
from livekit.agents import tts

from recall_livekit import Recall, Settings
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.voices import ToneTTS

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .line import Line, Speaker, until
from .speaking import STORY
from .test_agent import ROOM, Support

pytestmark = pytest.mark.anyio

WORD = 0.2
WITHIN = 0.3
"""What was heard so long before the end is known (seconds of speech)."""


class Played:
    """The sound as a caller's phone plays it: what comes too late leaves a gap."""

    def __init__(self) -> None:
        self.runs: list[tuple[float, float]] = []

    def add(self, at: float, seconds: float) -> None:
        self.runs.append((max(at, self.runs[-1][1] if self.runs else at), 0.0))
        self.runs[-1] = (self.runs[-1][0], self.runs[-1][0] + seconds)

    def seconds(self, until: float) -> float:
        return sum(max(0.0, min(until, end) - start) for start, end in self.runs)


class Phone(Speaker):
    """Plays in real time, with gaps where the sound is late."""

    def __init__(self) -> None:
        super().__init__()
        self.line = Played()

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        self.line.add(time.monotonic(), frame.duration)
        await super().capture_frame(frame)

    def flush(self) -> None:
        super().flush()
        if self._end is not None:
            self._end.cancel()
            left = max(0.0, self.line.runs[-1][1] - time.monotonic())
            self._end = asyncio.get_running_loop().call_later(left, self._finish, False)


class Untimed(ToneTTS):
    """Tells no times, and hands its sound over early, as most voices do."""

    def __init__(self, word_ms: int) -> None:
        super().__init__(word_ms=word_ms, lead=20.0)
        self._capabilities = tts.TTSCapabilities(streaming=True, aligned_transcript=False)


@dataclass
class Known:
    """What the records said at a moment, and what was heard before and after they were asked."""

    words: int
    before: float
    after: float


@dataclass
class Watch:
    """Reads the records every 50 ms, as who resumes would if the worker were killed right then."""

    reader: Recall
    phone: Phone
    known: list[Known] = field(default_factory=list)
    late: float = 0.0
    """The longest that this very loop was late: nothing of it can be expected to be faster."""

    async def run(self) -> None:
        while True:
            asked = time.monotonic()
            partials = (await self.reader.read(ROOM)).partials
            words = [len(p.text.split()) for p in partials if p.role == "assistant"]
            now = time.monotonic()
            line = self.phone.line
            self.known.append(Known(sum(words), line.seconds(asked), line.seconds(now)))
            await asyncio.sleep(0.05)
            self.late = max(self.late, time.monotonic() - asked - 0.05)


@asynccontextmanager
async def watched(line: Line, reader: Recall) -> AsyncIterator[Watch]:
    assert isinstance(line.speaker, Phone)
    watch = Watch(reader, line.speaker)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()


SENTENCE = " ".join(f"w{n}" for n in range(14))


async def spoken(
    open_recall: OpenRecall,
    voice: ToneTTS,
    text: str = SENTENCE,
    *,
    aligned: bool = True,
    word_delay: float = 0.01,
) -> Watch:
    """Let an agent say a sentence to its end, and the records be read all the time."""
    agent = Support(open_recall())
    line = Line(agent, lambda _: text, speaker=Phone())
    line.model.word_delay = word_delay
    line.session._tts = voice
    line.session.options.use_tts_aligned_transcript = aligned
    async with line.open(), watched(line, open_recall()) as watch:
        await until(lambda: line.session.agent_state == "speaking")
        await until(lambda: line.session.agent_state == "listening", 15)
    return watch


def check(watch: Watch, *, word: float = WORD, within: float = WITHIN) -> None:
    """Between two moments words may end, so the later one bounds what may be known."""
    during = [known for known in watch.known if known.before > 0 and known.words]
    assert len(during) > 10
    for known in during:
        assert known.words * word <= known.after + 0.001, f"not heard yet: {known}"
    for known in watch.known:
        if 0 < known.before < 13 * word:
            long_heard = int((known.before - within - watch.late) / word)
            assert known.words >= long_heard, f"heard and not known: {known}"


@pytest.mark.parametrize("aligned", [True, False], ids=["words timed", "times beside the sound"])
async def test_killed_at_every_50_ms_of_a_sentence(open_recall: OpenRecall, aligned: bool) -> None:
    check(await spoken(open_recall, ToneTTS(word_ms=200), aligned=aligned))


async def test_killed_at_every_50_ms_of_a_slow_sentence(open_recall: OpenRecall) -> None:
    """The synchronizer takes a voice to be quicker, and shows its words before they are heard."""
    text = " ".join(f"w{n}" for n in range(6))
    watch = await spoken(open_recall, ToneTTS(word_ms=600), text)
    for known in watch.known:
        assert known.words * 0.6 <= known.after + 0.001, f"not heard yet: {known}"
    assert max(known.words for known in watch.known) >= 5


async def test_killed_while_a_voice_speaks_that_tells_no_times(open_recall: OpenRecall) -> None:
    """A word is known to be over once the next is shown: one word later."""
    watch = await spoken(open_recall, Untimed(200), aligned=False)
    check(watch, within=WITHIN + 2 * WORD)


@pytest.mark.parametrize("timed", [True, False], ids=["words timed", "no times"])
async def test_killed_while_the_sound_comes_too_late(open_recall: OpenRecall, timed: bool) -> None:
    """A model that is slower than its voice: there is a gap after each word."""
    voice = ToneTTS(word_ms=200) if timed else Untimed(200)
    watch = await spoken(open_recall, voice, aligned=timed, word_delay=0.35)
    check(watch, within=WITHIN if timed else WITHIN + 2 * WORD)


TAGGED = (
    'w0 <expr type="expression" label="warm surprise"/> w1 w2 <expr type="sound" label="laugh"/> w3'
)


async def test_tags_in_the_text_are_no_words_of_it(open_recall: OpenRecall) -> None:
    """They come word by word like the rest, and are not said."""
    agent = Support(open_recall(partial_interval=0.02))
    line = Line(agent, lambda _: TAGGED, speaker=Phone())
    line.session._tts = ToneTTS(word_ms=200)
    line.session.options.use_tts_aligned_transcript = False
    known = set[str]()
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        reader = open_recall()
        while line.session.agent_state == "speaking":
            known |= {p.text.strip() for p in (await reader.read(ROOM)).partials}
            await anyio.sleep(0.02)
        await agent.call.flush(2)
    [turn] = await open_recall().turns(ROOM)
    assert turn.content.split() == ["w0", "w1", "w2", "w3"]
    assert len(known) > 2
    for words in known:
        assert ["w0", "w1", "w2", "w3"][: len(words.split())] == words.split()


async def cut_off(open_recall: OpenRecall) -> str:
    """What the next worker's model is told that the caller heard last."""
    agent = Support(open_recall(seed_wait=5.0))
    async with Line(agent).open() as line:
        await until(lambda: line.prompts, 10)
        prompt = "\n".join(line.prompts[0])
    [words] = re.findall(r"You were cut off after saying: (.*)", prompt)
    return str(words)


async def test_a_worker_that_is_gone_without_a_word_leaves_what_was_heard(
    open_recall: OpenRecall,
) -> None:
    """Its store is cut off in mid-sentence, and its voice goes on: nobody hears that."""
    freezer = Freezer(timeout=0.2)
    agent = Support(open_recall(faults=freezer, flush_wait=0.1))
    line = Line(agent, lambda _: SENTENCE, speaker=Phone())
    line.session._tts = ToneTTS(word_ms=200)
    async with line.open():
        await until(lambda: line.session.agent_state == "speaking")
        async with watched(line, open_recall()) as watch:
            await until(lambda: "w6" in line.subtitles.text)
        freezer.freeze()
        died = time.monotonic()
        await until(lambda: "w13" in line.subtitles.text)
        [left] = (await open_recall().read(ROOM)).partials
        freezer.thaw()
    heard = line.speaker.line.seconds(died)  # type: ignore[attr-defined]
    assert len(left.text.split()) * WORD <= heard
    assert len(left.text.split()) >= int((heard - WITHIN - watch.late) / WORD)


async def killed(directory: Path, after: float) -> float:
    """Kill a process that speaks, so long after its first sound; return how much was heard."""
    child = await anyio.open_process(
        [sys.executable, "-m", "tests.livekit.speaking", str(directory)], stderr=None
    )
    line = Played()
    try:
        assert child.stdout is not None
        rest = ""
        with anyio.fail_after(30):
            async for data in child.stdout:
                *lines, rest = (rest + data.decode()).split("\n")
                for told in lines:
                    if told.startswith("frame"):
                        line.add(float(told.split()[1]), 0.02)
                if line.runs and time.monotonic() >= line.runs[0][0] + after:
                    break
        child.send_signal(signal.SIGKILL)
        return line.seconds(time.monotonic())
    finally:
        with anyio.CancelScope(shield=True):
            if child.returncode is None:
                child.kill()
            await child.wait()
            await child.aclose()


LEAVE = 0.6
"""For words of 60 ms on a busy machine."""


@pytest.mark.parametrize("after", [0.5, 0.97, 1.6])
async def test_killed_in_mid_sentence(
    open_recall: OpenRecall, tmp_path: Path, after: float
) -> None:
    heard = await killed(tmp_path / "records", after)
    words = (await cut_off(open_recall)).split()
    assert words == STORY.split()[: len(words)]
    assert len(words) * 0.06 <= heard
    assert len(words) * 0.06 >= heard - LEAVE, "the words are those that were heard"


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_killed_at_every_50_ms(open_recall: OpenRecall, tmp_path: Path) -> None:
    late: list[float] = []
    for n, after in enumerate(itertools.takewhile(lambda t: t < 3.0, itertools.count(0.3, 0.05))):
        directory = tmp_path / f"records {n}"
        heard = await killed(directory, after)
        reader = Recall(SqliteStore(directory), settings=Settings())
        partials = (await reader.read(ROOM)).partials
        words = sum(len(p.text.split()) for p in partials)
        await reader.aclose()
        assert words * 0.06 <= heard, f"{words} words after {heard:.2f} s"
        late.append(heard - words * 0.06)
    print(f"heard and not known, at most: {max(late):.3f} s, mean {sum(late) / len(late):.3f} s")
    assert max(late) <= LEAVE
    assert sum(late) / len(late) <= WITHIN
