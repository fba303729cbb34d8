"""One call: two workers, one caller, a kill in the middle of a sentence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from .cast import STEP_S
from .process import DemoFailed, Process, Worker
from .script import Caller, asked_for, facts_in, greets
from .timeline import Screen, Timeline
from .wire import Event

__all__ = ["Story"]

TURNS_BEFORE = 2
WORDS_BEFORE = 8
MID_WORD_S = 0.1
MOST_TURNS = 8


@dataclass
class Story:
    """Tells the call, and keeps what the end of the demo needs to know of it."""

    screen: Screen
    recalls: bool
    timeline: Timeline = field(init=False)
    caller: Caller = field(default_factory=Caller)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    silence: float | None = None
    """Milliseconds from the kill to the second worker's first sound."""
    said_before: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """What the caller had said, as the second worker knew it at its first word."""
    cut: str = ""
    heard: str = ""
    """The cut sentence: as the briefing told it, and as the caller heard it."""
    after: list[str] = field(default_factory=list)
    """What the agent said after the kill."""
    bookings: list[dict[str, str]] = field(default_factory=list)

    async def until_cut(self, first: Worker, *, speed: float = 1.0) -> None:
        """Let the first worker talk until it is in the middle of its third sentence."""
        self.timeline = Timeline(self.screen, self.recalls, time.monotonic(), quiet=speed > 1)
        first.order("go", speed=speed)
        for _ in range(TURNS_BEFORE):
            await self._answer(first)
        await self._until(first, lambda event: len(self.heard.split()) >= WORDS_BEFORE)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._until(first, lambda _: False), MID_WORD_S / speed)
        self.said_before = list(self.caller.said)

    async def take_over(self, first: Worker, second: Worker) -> None:
        """Kill the first worker; the second is told as soon as that one is dead."""
        killed_at = time.monotonic()
        first.kill()
        await asyncio.wait_for(first.gone(), STEP_S)
        died_at = time.monotonic()
        second.order("go", speed=1.0)
        while (event := await asyncio.wait_for(first.next(), STEP_S)) is not None:
            self._note(first, event)
        self.timeline.killed(first.number, killed_at)
        self.timeline.died(first.number, died_at)

    async def until_booked(self, second: Worker) -> None:
        """Let the second worker finish what the caller wants."""
        for _ in range(MOST_TURNS):
            agent = await self._agent_turn(second)
            if self.bookings:
                return
            second.order("say", text=self.caller.answer(agent))
        raise DemoFailed(f"nothing was booked after {MOST_TURNS} more turns")

    async def until_asked(self, second: Worker) -> None:
        """Let the second worker ask for what was said before."""
        await self._answer(second)
        await self._agent_turn(second)

    async def end(self, worker: Worker) -> None:
        """Hang up; returns when the worker has written everything and ended."""
        worker.order("end")
        while (event := await asyncio.wait_for(worker.next(), STEP_S)) is not None:
            self._note(worker, event)

    # --- what came of it ----------------------------------------------------------------------

    @property
    def greeted_again(self) -> bool:
        return any(greets(text) for text in self.after)

    @property
    def asked_again(self) -> list[str]:
        """What the agent asked for after the kill though it had been told before it."""
        told = {"purpose", *facts_in(" ".join(self.said_before))}
        asked = [fact for text in self.after for fact in asked_for(text)]
        return [fact for fact in dict.fromkeys(asked) if fact in told]

    @property
    def misbehaved(self) -> list[str]:
        """What the resumed agent did wrong."""
        faults = ["the resumed agent greeted again"] if self.greeted_again else []
        faults += [f"the resumed agent asked again for the {fact}" for fact in self.asked_again]
        if len(self.bookings) != 1:
            faults.append(f"the table was booked {len(self.bookings)} times")
        return faults

    @property
    def words_known(self) -> tuple[int, int]:
        """How many of the caller's words the second worker knew, and how many there were."""
        known = sum(len(line.split()) for line in self.said_before if line in self.known)
        return known, len(" ".join(self.said_before).split())

    # --- inside -------------------------------------------------------------------------------

    async def _answer(self, worker: Worker) -> None:
        worker.order("say", text=self.caller.answer(await self._agent_turn(worker)))

    async def _agent_turn(self, worker: Worker) -> str:
        event = await self._until(worker, lambda event: event.by_agent)
        return str(event["text"])

    async def _until(self, worker: Worker, wanted: Callable[[Event], bool]) -> Event:
        """Show what the worker tells until the wanted thing comes."""
        try:
            async with asyncio.timeout(STEP_S):
                while (event := await worker.next()) is not None:
                    self._note(worker, event)
                    if wanted(event):
                        return event
        except TimeoutError:
            raise DemoFailed(f"worker {worker.number} did nothing more for {STEP_S} s") from None
        raise DemoFailed(f"worker {worker.number} ended too early")

    def _note(self, worker: Process, event: Event) -> None:
        self.timeline.show(worker.number, event)
        if self.timeline.killed_at is not None:
            self._note_after(event)
        elif event.kind == "turn":
            self.heard = ""
        elif event.kind == "word":
            self.heard += event["text"]
        if event.kind == "acknowledged":
            self.acknowledged += event["records"]

    def _note_after(self, event: Event) -> None:
        assert self.timeline.killed_at is not None
        after = (event.at - self.timeline.killed_at) * 1000
        if event.kind == "sound" and self.silence is None:
            self.silence, self.known = after, event["known"]
        match event.kind:
            case "read":
                self.cut = event["cut"]
            case "turn" if event.by_agent:
                self.after.append(event["text"])
            case "tool" if event["name"] == "book":
                self.bookings.append(event["arguments"])
