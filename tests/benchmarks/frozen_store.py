"""What a caller waits for when the store does not answer at takeover: `seed_wait`, once."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.agents.voice import io

from recall_livekit import Briefing, Recall, RecallAgent
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.faults import FaultyStore
from recall_livekit.testing.voices import ScriptedLLM, ToneTTS

from .figures import median_ms
from .recorded import copied, record_calls
from .registry import Row, Scale, benchmark
from .resumed import end

WITHIN_S = 10.0
TIMEOUT_S = 2.0
REPLY = "Yes"

Replies: TypeAlias = tuple[float, float]
"""Seconds until the first and the second reply were heard."""


class Plain(Agent):
    async def on_enter(self) -> None:
        self.session.generate_reply()


class Resumed(RecallAgent):
    async def on_fresh(self) -> None:
        self.session.generate_reply()

    async def on_resume(self, briefing: Briefing | None) -> None:
        self.session.generate_reply()


class Earpiece(io.AudioOutput):
    """Hears when sound begins."""

    def __init__(self) -> None:
        capabilities = io.AudioOutputCapabilities(pause=False)
        super().__init__(label="earpiece", capabilities=capabilities, sample_rate=24_000)
        self.heard = asyncio.Event()
        self.heard_at = 0.0
        self._seconds = 0.0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        if not self.heard.is_set():
            self.heard_at = time.perf_counter()
            self.heard.set()
        self._seconds += frame.duration

    def flush(self) -> None:
        super().flush()
        if self._seconds:
            self.on_playback_finished(playback_position=self._seconds, interrupted=False)
        self._seconds = 0.0

    def clear_buffer(self) -> None:
        self.flush()


@benchmark("frozen_store_first_reply", "frozen_store_second_reply")
def frozen_store(scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory:
        pairs = asyncio.run(_pairs(Path(directory) / "records", scale.of(15, 1)))
    for number, (name, target) in enumerate(
        (("first", "<= 250 ms extra"), ("second", "nothing extra"))
    ):
        ours = median_ms([frozen[number] for frozen, _ in pairs])
        alone = median_ms([plain[number] for _, plain in pairs])
        yield Row(f"frozen_store_{name}_reply", ours, "ms", alone, target)


async def _pairs(recorded: Path, rounds: int) -> list[tuple[Replies, Replies]]:
    await record_calls(recorded, 20)
    await _plain()  # what is imported late is imported now
    return [(await _frozen(recorded), await _plain()) for _ in range(rounds)]


async def _plain() -> Replies:
    return await _replies(lambda: Plain(instructions="You are kind."))


async def _frozen(recorded: Path) -> Replies:
    with copied(recorded) as directory:
        store = FaultyStore(SqliteStore(directory), Random(0), timeout=TIMEOUT_S)
        store.freeze()
        async with Recall(store) as recall:
            return await _replies(
                lambda: Resumed(instructions="You are kind.", resume="call-0", recall=recall),
                store.thaw,
            )


async def _replies(
    new_agent: Callable[[], Agent], before_close: Callable[[], None] = lambda: None
) -> Replies:
    session, earpiece = _new_session(), Earpiece()
    session.output.audio = earpiece
    try:
        began = time.perf_counter()
        agent = new_agent()
        await session.start(agent)
        first = await _heard(earpiece) - began
        await _silent(session)
        earpiece.heard.clear()
        began = time.perf_counter()
        session.generate_reply()
        return first, await _heard(earpiece) - began
    finally:
        before_close()
        if isinstance(agent, RecallAgent):
            await agent.call.flush(seconds=WITHIN_S)
        await end(session, agent)


async def _heard(earpiece: Earpiece) -> float:
    await asyncio.wait_for(earpiece.heard.wait(), WITHIN_S)
    return earpiece.heard_at


async def _silent(session: AgentSession[Any]) -> None:
    speech = session.current_speech
    if speech is not None:
        await asyncio.wait_for(speech.wait_for_playout(), WITHIN_S)


def _new_session() -> AgentSession[Any]:
    return AgentSession(
        llm=ScriptedLLM(lambda _: REPLY),
        tts=ToneTTS(),
        vad=None,
        turn_handling={"turn_detection": None},
    )
