"""A caller in a real room, who speaks in tones and keeps a timeline of all that is heard."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from livekit import rtc
from livekit.agents.types import TOPIC_TRANSCRIPTION

from recall_livekit.testing.voices import FRAME_MS, SAMPLE_RATE, Ear, Sound, WordEar, tones

from .dialogue import bare, in_order

CONNECT_S = 10.0
_QUIET = rtc.AudioFrame(bytes(2 * SAMPLE_RATE // 2), SAMPLE_RATE, 1, SAMPLE_RATE // 2)
_FRAME_S = FRAME_MS / 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Heard:
    """20 ms of one agent's voice, and when (monotonic seconds) it reached the caller's ear."""

    at: float
    identity: str
    sound: Sound


@dataclass(slots=True)
class Line:
    """One segment of a transcription, as far as it has come."""

    at: float
    identity: str
    text: str


class Timeline:
    """What reached the caller's ear, oldest first; the last 20 minutes of one voice."""

    def __init__(self) -> None:
        self._heard: deque[Heard] = deque(maxlen=60_000)

    def add(self, heard: Heard) -> None:
        self._heard.append(heard)

    def audible(
        self,
        identity: str | None = None,
        *,
        besides: Collection[str] = (),
        after: float = 0.0,
        before: float = float("inf"),
    ) -> Iterator[Heard]:
        """The audible frames of one agent, or of all but some, in a span of time."""
        for heard in self._heard:
            mine = identity in (None, heard.identity) and heard.identity not in besides
            if mine and heard.sound.audible and after <= heard.at < before:
                yield heard

    def voices(self, *, after: float = 0.0, before: float = float("inf")) -> list[str]:
        """The identities that were audible, in the order of their first sound."""
        heard = self.audible(after=after, before=before)
        return list(dict.fromkeys(one.identity for one in heard))

    def gap(self, old: str, new: str, *, before: float = float("inf")) -> float:
        """Seconds of silence between two voices; negative if they overlap."""
        last = max(heard.at for heard in self.audible(old, before=before))
        return min(heard.at for heard in self.audible(new)) - (last + _FRAME_S)

    def words(self, vocabulary: Iterable[str], identity: str, *, after: float = 0.0) -> list[str]:
        """The words that this agent was heard to say."""
        ear = WordEar(vocabulary)
        mine = (one for one in self._heard if one.identity == identity and one.at >= after)
        return [word for one in mine if (word := ear.hear(one.sound))]

    def overlap(self, *, after: float = 0.0, before: float = float("inf")) -> float:
        """The seconds in which two agents or more were audible at once."""
        voices = defaultdict(set)
        for heard in self.audible(after=after, before=before):
            voices[int(heard.at / _FRAME_S)].add(heard.identity)
        return _FRAME_S * sum(len(identities) > 1 for identities in voices.values())


class Caller:
    """`async with Caller(url, token) as caller`: in the room, with an open microphone.

    A `silent` one is there, and reads what is transcribed: it neither speaks nor listens.
    """

    def __init__(self, url: str, token: str, *, silent: bool = False) -> None:
        self.timeline = Timeline()
        self.lines: list[Line] = []
        self._url, self._token, self._silent = url, token, silent
        self._room = rtc.Room()
        self._microphone = rtc.AudioSource(SAMPLE_RATE, 1, queue_size_ms=200)
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ears: dict[str, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._microphone.aclose)
            self._group = await stack.enter_async_context(asyncio.TaskGroup())
            stack.callback(self._stop_listening)
            stack.push_async_callback(self._room.disconnect)
            await self._join()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def say(self, text: str) -> None:
        """Speaks `text` in tones; returns when the last word is out."""
        for frame in (*tones(text), _QUIET):
            await self._microphone.capture_frame(frame)
        await self._microphone.wait_for_playout()

    async def until(self, check: Callable[[], T | None], *, within: float) -> T:
        """The first true answer of `check`, which is asked anew whenever something was heard."""
        async with asyncio.timeout(within):
            while not (found := check()):
                self._news.clear()
                await self._news.wait()
        return found

    async def hears(
        self,
        identity: str | None = None,
        *,
        besides: Collection[str] = (),
        after: float,
        within: float,
    ) -> Heard:
        """The first sound of this agent, or of any but some, from the time `after` on."""
        sounds = self.timeline.audible
        return await self.until(
            lambda: next(sounds(identity, besides=besides, after=after), None), within=within
        )

    async def hears_words(
        self, text: str, identity: str, *, after: float = 0.0, within: float
    ) -> None:
        """Returns when this agent was heard to say all of these words, in this order."""
        wanted = bare(text)
        heard = self.timeline.words
        await self.until(
            lambda: in_order(heard(set(wanted), identity, after=after), wanted), within=within
        )

    def read(self, identity: str) -> str:
        """What this agent's transcription says so far, as bare words."""
        mine = (line.text for line in self.lines if line.identity == identity)
        return " ".join(word for text in mine for word in bare(text))

    async def reads(self, text: str, identity: str, *, times: int = 1, within: float) -> None:
        """Returns when this agent's transcription has these words in a row, so many times."""
        wanted = " ".join(bare(text))
        await self.until(lambda: self.read(identity).count(wanted) >= times, within=within)

    async def _join(self) -> None:
        self._room.on("track_subscribed", self._subscribed)
        self._room.on("track_unsubscribed", self._unsubscribed)
        self._room.register_text_stream_handler(TOPIC_TRANSCRIPTION, self._transcribed)
        async with asyncio.timeout(CONNECT_S):
            await self._room.connect(self._url, self._token)
            if self._silent:
                return
            track = rtc.LocalAudioTrack.create_audio_track("microphone", self._microphone)
            source = rtc.TrackPublishOptions(source=rtc.TrackSource.SOURCE_MICROPHONE)
            await self._room.local_participant.publish_track(track, source)

    def _subscribed(
        self, track: rtc.Track, _: rtc.RemoteTrackPublication, speaker: rtc.RemoteParticipant
    ) -> None:
        if isinstance(track, rtc.RemoteAudioTrack) and not self._silent:
            self._ears[track.sid] = self._start(self._listen(track, speaker.identity))

    def _unsubscribed(self, track: rtc.Track, *_: object) -> None:
        """The next agent's voice may come over the very same wire: this is not the old one's."""
        if (ear := self._ears.pop(track.sid, None)) is not None:
            ear.cancel()

    async def _listen(self, track: rtc.RemoteAudioTrack, identity: str) -> None:
        ear = Ear()
        stream = rtc.AudioStream(track, sample_rate=SAMPLE_RATE, frame_size_ms=FRAME_MS)
        try:
            async for event in stream:
                for sound in ear.hear(event.frame):
                    self.timeline.add(Heard(time.monotonic(), identity, sound))
                    self._news.set()
        finally:
            await stream.aclose()

    def _transcribed(self, reader: rtc.TextStreamReader, identity: str) -> None:
        self._start(self._read(reader, Line(time.monotonic(), identity, "")))

    async def _read(self, reader: rtc.TextStreamReader, line: Line) -> None:
        self.lines.append(line)
        with suppress(rtc.StreamError):  # its agent died in the middle of it
            async for text in reader:
                line.text += text
                self._news.set()

    def _start(self, listening: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(listening)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _stop_listening(self) -> None:
        for task in self._tasks:
            task.cancel()
