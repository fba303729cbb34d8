"""Scripted parts for a voice pipeline: no key, no network, no model files.

Words are spoken as tones, one frequency for each word, so whoever listens can tell which words
were heard: a test, a demo, or `ScriptedSTT` at the other end of a real room.
"""

import asyncio
import re
import zlib
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from livekit import rtc
from livekit.agents import (
    DEFAULT_API_CONNECT_OPTIONS,
    NOT_GIVEN,
    APIConnectOptions,
    NotGivenOr,
    llm,
    stt,
    tts,
    utils,
)
from livekit.agents.language import LanguageCode
from livekit.agents.types import TimedString

__all__ = [
    "FRAME_MS",
    "SAMPLE_RATE",
    "Ear",
    "PacedTTS",
    "Reply",
    "ScriptedLLM",
    "ScriptedSTT",
    "Sound",
    "ToneTTS",
    "WordEar",
    "lexicon",
    "said",
    "tone_of",
    "tones",
    "tool_call",
]

Reply: TypeAlias = str | Sequence[llm.FunctionToolCall]
Samples: TypeAlias = npt.NDArray[np.int16]

SAMPLE_RATE = 24_000
FRAME_MS = 20
WORD_MS = 200
PAUSE_MS = 40  # at the end of each word: "four four" is two words
_LOWEST_HZ, _STEP_HZ, _TONES = 400, 15, 200
_AMPLITUDE = 9_000
_AUDIBLE_RMS = 500
_RUN = 4  # like frames that make a word: most of one, and more than half of what jitter leaves


# ---- words as tones


def tone_of(word: str) -> float:
    """The frequency in Hz that speaks `word`; case and punctuation do not count."""
    return _LOWEST_HZ + _STEP_HZ * _index_of(word)


def _index_of(word: str) -> int:
    bare = re.sub(r"\W", "", word.casefold())
    return zlib.crc32(bare.encode()) % _TONES


def lexicon(words: Iterable[str]) -> dict[float, str]:
    """The words by their tones. Raises ValueError if two of them sound alike."""
    found: dict[float, str] = {}
    for word in words:
        if found.setdefault(tone_of(word), word) != word:
            raise ValueError(f"{word!r} sounds like {found[tone_of(word)]!r}: choose another word")
    return found


def tones(
    text: str, *, sample_rate: int = SAMPLE_RATE, word_ms: int = WORD_MS
) -> Iterator[rtc.AudioFrame]:
    """`text` spoken: frames of 20 ms, `word_ms` for each word with a short pause at its end."""
    for word in text.split():
        yield from _frames(_word(tone_of(word), sample_rate, word_ms), sample_rate)


def _word(hz: float, sample_rate: int, word_ms: int) -> Samples:
    sounding = sample_rate * (word_ms - PAUSE_MS) // 1000
    wave = _AMPLITUDE * np.sin(2 * np.pi * hz * np.arange(sounding) / sample_rate)
    ramp = np.minimum(1, np.arange(sounding) / (sample_rate * 0.005))  # no click at either end
    quiet = np.zeros(sample_rate * PAUSE_MS // 1000)
    return np.concatenate([wave * ramp * ramp[::-1], quiet]).astype(np.int16)


def _frames(samples: Samples, sample_rate: int) -> Iterator[rtc.AudioFrame]:
    size = sample_rate * FRAME_MS // 1000
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        yield rtc.AudioFrame(part.tobytes(), sample_rate, 1, len(part))


# ---- ears


@dataclass(frozen=True, slots=True)
class Sound:
    """What an ear makes of 20 ms: loudness (RMS of 16 bit samples) and strongest frequency."""

    rms: float
    hz: float

    @property
    def audible(self) -> bool:
        return self.rms >= _AUDIBLE_RMS

    @property
    def tone(self) -> float | None:
        """The tone of the table that is nearest; None in silence."""
        steps = round((self.hz - _LOWEST_HZ) / _STEP_HZ)
        return _LOWEST_HZ + _STEP_HZ * steps if self.audible and 0 <= steps < _TONES else None


class Ear:
    """Turns audio frames of any length and one sample rate into sounds of 20 ms each."""

    def __init__(self) -> None:
        self._rest: Samples = np.zeros(0, np.int16)

    def hear(self, frame: rtc.AudioFrame) -> Iterator[Sound]:
        size = frame.sample_rate * FRAME_MS // 1000
        heard = np.frombuffer(frame.data, np.int16)[:: frame.num_channels]
        self._rest = np.concatenate([self._rest, heard])
        while len(self._rest) >= size:
            part, self._rest = self._rest[:size], self._rest[size:]
            yield _sound(part, frame.sample_rate)


def _sound(samples: Samples, sample_rate: int) -> Sound:
    rms = float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
    return Sound(rms, _strongest(samples, sample_rate) if rms >= _AUDIBLE_RMS else 0.0)


def _strongest(samples: Samples, sample_rate: int) -> float:
    padded = 16_384  # with the window it places a single tone to 2 Hz in 20 ms
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)), padded))
    return float(np.argmax(spectrum)) * sample_rate / padded


class WordEar:
    """Recognises words: a run of like sounds is one word."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = lexicon(words)
        self._tone: float | None = None
        self._run = 0

    def hear(self, sound: Sound) -> str | None:
        """The word that this sound made certain, once for each time it is spoken."""
        self._run = self._run + 1 if sound.tone == self._tone else 1
        self._tone = sound.tone
        if self._tone is None or self._run != _RUN:
            return None
        return self._words.get(self._tone)


# ---- the model


def tool_call(name: str, arguments: str = "{}") -> llm.FunctionToolCall:
    """A call of the tool `name` for a scripted reply; `arguments` is JSON."""
    return llm.FunctionToolCall(name=name, arguments=arguments, call_id=utils.shortuuid("call_"))


def said(chat_ctx: llm.ChatContext, *roles: llm.ChatRole) -> list[str]:
    """The texts in a chat context, oldest first; of these roles, or of all."""
    messages = chat_ctx.messages()
    return [item.text_content or "" for item in messages if not roles or item.role in roles]


class ScriptedLLM(llm.LLM[Any]):
    """A model whose replies a function makes out of the chat context it is given.

    The instructions of `generate_reply(instructions=...)` are the context's last system message.
    """

    def __init__(
        self,
        reply: Callable[[llm.ChatContext], Reply],
        *,
        first_delay: float = 0.0,
        word_delay: float = 0.01,
    ) -> None:
        super().__init__()
        self.reply = reply
        self.first_delay = first_delay
        self.word_delay = word_delay
        self.prompts: deque[llm.ChatContext] = deque(maxlen=100)
        """The last contexts that the model was asked with, newest last."""

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        parallel_tool_calls: NotGivenOr[bool] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        extra_kwargs: NotGivenOr[dict[str, Any]] = NOT_GIVEN,
    ) -> llm.LLMStream:
        self.prompts.append(chat_ctx.copy())
        return _ReplyStream(self, chat_ctx, tools or [], conn_options)


class _ReplyStream(llm.LLMStream):
    def __init__(
        self,
        script: ScriptedLLM,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool],
        conn_options: APIConnectOptions,
    ) -> None:
        super().__init__(script, chat_ctx=chat_ctx, tools=tools, conn_options=conn_options)
        self._script = script
        self._id = utils.shortuuid("reply_")

    async def _run(self) -> None:
        await asyncio.sleep(self._script.first_delay)
        reply = self._script.reply(self._chat_ctx)
        if not isinstance(reply, str):
            self._send(llm.ChoiceDelta(role="assistant", tool_calls=list(reply)))
            return
        for word in re.findall(r"\S+\s*", reply):
            self._send(llm.ChoiceDelta(role="assistant", content=word))
            await asyncio.sleep(self._script.word_delay)

    def _send(self, delta: llm.ChoiceDelta) -> None:
        self._event_ch.send_nowait(llm.ChatChunk(id=self._id, delta=delta))


# ---- the voice


class PacedTTS(tts.TTS[Any]):
    """A voice that hands its audio over at the pace of speech, and tells when each word is heard.

    `lead` seconds of audio run ahead of real time: much more at once blocks the event loop of
    the session, which analyses the speaking rate of whatever it is handed (15 ms a second).
    """

    def __init__(self, *, lead: float = 0.2, sample_rate: int = SAMPLE_RATE) -> None:
        timed_words = tts.TTSCapabilities(streaming=True, aligned_transcript=True)
        super().__init__(capabilities=timed_words, sample_rate=sample_rate, num_channels=1)
        self.lead = lead

    @abstractmethod
    def cut(self, text: str) -> tuple[list[str], str]:
        """The parts of `text` that can be spoken before more of it is known, and the rest."""

    @abstractmethod
    def speak(self, part: str) -> Iterable[tuple[str, Samples]]:
        """The words of a part, each with its sound: 16 bit mono samples."""

    def synthesize(
        self, text: str, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.ChunkedStream:
        return self._synthesize_with_stream(text, conn_options=conn_options)

    def stream(
        self, *, conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS
    ) -> tts.SynthesizeStream:
        return _PacedStream(self, conn_options)


class _PacedStream(tts.SynthesizeStream):
    def __init__(self, voice: PacedTTS, conn_options: APIConnectOptions) -> None:
        super().__init__(tts=voice, conn_options=conn_options)
        self._voice = voice

    async def _run(self, output_emitter: tts.AudioEmitter) -> None:
        self._open(output_emitter)
        pace = Pace(self._voice.lead)
        async for part in self._parts():
            self._mark_started()
            for word, samples in self._voice.speak(part):
                output_emitter.push_timed_transcript(self._timed(word, samples, pace.pushed))
                for frame in _frames(samples, self._voice.sample_rate):
                    await pace.wait(frame.duration)
                    output_emitter.push(bytes(frame.data))
        output_emitter.end_segment()

    def _open(self, output_emitter: tts.AudioEmitter) -> None:
        output_emitter.initialize(
            request_id=utils.shortuuid("speech_"),
            sample_rate=self._voice.sample_rate,
            num_channels=1,
            mime_type="audio/pcm",
            frame_size_ms=FRAME_MS,
            stream=True,
        )
        output_emitter.start_segment(segment_id=utils.shortuuid("segment_"))

    def _timed(self, word: str, samples: Samples, start: float) -> TimedString:
        end = start + len(samples) / self._voice.sample_rate
        return TimedString(f"{word} ", start_time=start, end_time=end)

    async def _parts(self) -> AsyncIterator[str]:
        rest = ""
        async for text in self._input_ch:
            parts, rest = self._voice.cut(rest + (text if isinstance(text, str) else " "))
            for part in parts:
                yield part
        if rest.strip():
            yield rest.strip()


class ToneTTS(PacedTTS):
    """Speaks each word as its tone, `word_ms` long with a short pause at its end."""

    def __init__(
        self, *, word_ms: int = WORD_MS, lead: float = 0.2, sample_rate: int = SAMPLE_RATE
    ) -> None:
        super().__init__(lead=lead, sample_rate=sample_rate)
        self.word_ms = word_ms

    def cut(self, text: str) -> tuple[list[str], str]:
        *words, rest = re.split(r"\s+", text)
        return [word for word in words if word], rest

    def speak(self, part: str) -> Iterable[tuple[str, Samples]]:
        return [(part, _word(tone_of(part), self.sample_rate, self.word_ms))]


class Pace:
    """Holds a speaker to real time, `lead` seconds ahead of it."""

    def __init__(self, lead: float = 0.0) -> None:
        self.pushed = 0.0
        """Seconds of audio let through so far."""
        self._lead = lead
        self._due = 0.0

    async def wait(self, duration: float) -> None:
        """Returns when the next `duration` seconds of audio may go out."""
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now - self._lead)
        await asyncio.sleep(max(0.0, self._due - now))
        self._due += duration
        self.pushed += duration


# ---- the recogniser


class ScriptedSTT(stt.STT[Any]):
    """Hears what it is told by `say`, and the tones of `vocabulary` in the caller's real audio.

    It reports speech word by word and ends each turn itself, so no VAD is needed:
    `AgentSession(vad=None, turn_handling={"turn_detection": "stt"})`.
    """

    def __init__(
        self, vocabulary: Iterable[str] = (), *, word_delay: float = 0.1, end_silence: float = 0.3
    ) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=True, interim_results=True))
        self.vocabulary = tuple(vocabulary)
        self.word_delay = word_delay
        self.end_silence = end_silence
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def say(self, text: str) -> None:
        """Makes the caller say `text`: at once, or as soon as a session listens."""
        self.lines.put_nowait(text)

    def stream(
        self,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> stt.RecognizeStream:
        return _HearingStream(self, conn_options)

    async def _recognize_impl(
        self,
        buffer: utils.AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions,
    ) -> stt.SpeechEvent:
        raise NotImplementedError("ScriptedSTT hears streams only")


class _HearingStream(stt.RecognizeStream):
    def __init__(self, recogniser: ScriptedSTT, conn_options: APIConnectOptions) -> None:
        super().__init__(stt=recogniser, conn_options=conn_options)
        self._recogniser = recogniser

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            script = group.create_task(self._follow_script())
            await self._listen()
            script.cancel()

    async def _follow_script(self) -> None:
        while True:
            turn = _Turn(self._send)
            for word in (await self._recogniser.lines.get()).split():
                turn.add(word)
                await asyncio.sleep(self._recogniser.word_delay)
            turn.end()

    async def _listen(self) -> None:
        ear, words, turn = Ear(), WordEar(self._recogniser.vocabulary), _Turn(self._send)
        quiet = 0.0
        async for frame in self._input_ch:
            for sound in ear.hear(frame) if isinstance(frame, rtc.AudioFrame) else ():
                if word := words.hear(sound):
                    turn.add(word)
                quiet = 0.0 if sound.audible else quiet + FRAME_MS / 1000
                if quiet >= self._recogniser.end_silence:
                    turn.end()

    def _send(self, kind: stt.SpeechEventType, text: str) -> None:
        data = stt.SpeechData(language=LanguageCode("en"), text=text, confidence=1.0)
        self._event_ch.send_nowait(stt.SpeechEvent(type=kind, alternatives=[data]))


class _Turn:
    """One turn of the caller, reported word by word; after its end the next one begins."""

    def __init__(self, send: Callable[[stt.SpeechEventType, str], None]) -> None:
        self._send = send
        self._words: list[str] = []

    def add(self, word: str) -> None:
        if not self._words:
            self._send(stt.SpeechEventType.START_OF_SPEECH, "")
        self._words.append(word)
        self._send(stt.SpeechEventType.INTERIM_TRANSCRIPT, " ".join(self._words))

    def end(self) -> None:
        if self._words:
            self._send(stt.SpeechEventType.FINAL_TRANSCRIPT, " ".join(self._words))
            self._send(stt.SpeechEventType.END_OF_SPEECH, "")
        self._words = []
