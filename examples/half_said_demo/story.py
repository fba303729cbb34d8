"""One call that is killed three times: while it speaks, and on both sides of a charge."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from recovery.cast import STEP_S, Cast
from recovery.process import Process
from recovery.timeline import Row, Screen, Timeline
from recovery.wire import Event

from .script import OFFER, Caller

__all__ = ["Provider", "Story", "Worker"]

WORDS_BEFORE = 8
MID_WORD_S = 0.1
LOOK_S = 0.5
"""So long one may look at what happened before the next thing does."""
PROVIDER = 3


class Worker(Process):
    """One worker process."""

    module = "half_said_demo.worker"


class Provider(Process):
    """The payment provider."""

    module = "half_said_demo.payments"


@dataclass
class PaidTimeline(Timeline):
    """Shows what the provider does in a column of its own."""

    def payment(self, event: Event) -> None:
        if told := told_payment(event):
            self._add(Row(PROVIDER, "fact", self._when(event.at), told))


def told_payment(event: Event) -> str:
    """Return what happened at the provider, "" if it is not worth a line."""
    match event.kind:
        case "asked":
            return f"asked to charge {event['cents'] / 100:.2f}: {event['order']}"
        case "taken":
            return f"money taken, receipt {event['receipt']}"
        case "lost":
            return "the request was lost: nothing taken"
        case "found":
            receipt = event["receipt"]
            return f"looked up: {f'receipt {receipt}' if receipt else 'no such charge'}"
        case _:
            return ""


@dataclass
class Story:
    """Tells the call, and keeps what the end of the demo needs to know of it."""

    screen: Screen
    cast: Cast
    provider: Provider
    recalls: bool
    speed: float = 1.0
    timeline: PaidTimeline = field(init=False)
    caller: Caller = field(default_factory=Caller)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    silences: list[float] = field(default_factory=list)
    """Milliseconds from each kill to the next worker's first sound."""
    heard: str = ""
    """What was heard of the offer when its worker was killed."""
    rest: str = ""
    """What the next worker said of it."""
    _under_way: str = ""
    _unanswered: deque[str] = field(default_factory=deque)
    _seen: list[Event] = field(default_factory=list)
    _silent: bool = False
    _holds: bool = False
    """Whether the next charge waits for our order."""

    def begin(self, first: Worker) -> None:
        """The caller rings."""
        now = time.monotonic()
        self.timeline = PaidTimeline(self.screen, self.recalls, now, quiet=not self.recalls)
        self._go(first)

    async def killed_in_mid_sentence(self, worker: Worker, then: Worker) -> None:
        """While it makes its offer; the next worker says the rest of that."""
        await self.answers(worker)
        await self._until(lambda: len(self._under_way.split()) >= WORDS_BEFORE)
        await self._show_for(MID_WORD_S)
        self.heard = await self._kill(worker, "in the middle of a sentence", then)
        self.rest = (await self._turn()).rpartition("I was saying: ")[2]
        then.order("say", text=self.caller.answer(self.rest))

    async def killed_when_paid(self, worker: Worker, then: Worker) -> None:
        """The provider took the money; the answer finds nobody."""
        await self._charge()
        await self._kill(worker, "the money is taken, and it has not heard of that", then)
        self.provider.order("answer")

    async def killed_before_paid(self, worker: Worker, then: Worker) -> None:
        """The request gets lost; nothing tells it apart from one that did not."""
        await self._asked()
        await self._kill(worker, "before any money was taken", then)
        self.provider.order("lose")

    async def answers(self, worker: Worker) -> str:
        """The caller answers what this worker says; return that."""
        agent = await self._turn()
        worker.order("say", text=self.caller.answer(agent))
        return agent

    async def pays(self) -> str:
        """Nobody is killed; return what the agent says then. It may have forgotten to charge."""
        if await self._charge():
            self.provider.order("answer")
        return await self._turn()

    async def end(self, worker: Worker) -> None:
        """Hang up; returns when the worker has written everything and ended."""
        worker.order("end")
        await self._until(lambda: self._saw("ended"))

    # --- what came of it ----------------------------------------------------------------------

    @property
    def words(self) -> tuple[int, int]:
        """How many words of the offer were said twice, and how many never."""
        more = len(self.heard.split()) + len(self.rest.split()) - len(OFFER.split())
        return max(0, more), max(0, -more)

    # --- inside -------------------------------------------------------------------------------

    def _go(self, worker: Worker) -> None:
        self._silent = bool(self.timeline.killed_at)
        worker.order("go", speed=self.speed)

    async def _kill(self, worker: Worker, when: str, then: Worker) -> str:
        """SIGKILL; the next worker is told as soon as this one is dead. Return what was heard of
        the sentence that was under way."""
        killed_at = time.monotonic()
        died_at = await self.cast.kill(worker)
        for event in await asyncio.wait_for(self.cast.last_words(worker), STEP_S):
            self._note(worker, event)
        self.timeline.killed(worker.number, killed_at, when)
        self.timeline.died(worker.number, died_at)
        self._unanswered.clear()
        heard, self._under_way = self._under_way.strip(), ""
        self._go(then)
        return heard

    async def _charge(self) -> bool:
        """Return True when the money was taken and nobody was told, False if nobody asked."""
        if not await self._asked():
            return False
        self.provider.order("take")
        await self._until(lambda: self._saw("taken"))
        await self._show_for(LOOK_S)
        return True

    async def _asked(self) -> bool:
        """Return True when the provider is asked for a charge, which waits for our order; False
        once the agent speaks instead."""
        self._seen.clear()
        self._holds = True
        await self._until(lambda: self._saw("asked", keep=True) or self._unanswered)
        self._holds = False
        asked = self._saw("asked")
        await self._show_for(LOOK_S)
        return asked

    async def _turn(self) -> str:
        await self._until(lambda: self._unanswered)
        return self._unanswered.popleft()

    async def _until(self, enough: Callable[[], object]) -> None:
        await self.cast.until(enough, self._note)

    async def _show_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._until(lambda: False), seconds / self.speed)

    def _saw(self, kind: str, *, keep: bool = False) -> bool:
        """Whether this was told, since it was asked for last."""
        found = any(event.kind == kind for event in self._seen)
        if found and not keep:
            self._seen.clear()
        return found

    def _note(self, who: Process, event: Event) -> None:
        if who is self.provider:
            self._note_payment(event)
            return
        self.timeline.show(who.number, event)
        match event.kind:
            case "sound" if self._silent:
                self.silences.append((event.at - (self.timeline.killed_at or 0)) * 1000)
                self._silent = False
            case "word":
                self._under_way += event["text"]
            case "turn" if event.by_agent:
                self._under_way = ""
                self._unanswered.append(event["text"])
            case "acknowledged":
                self.acknowledged += event["records"]
            case "ended":
                self._seen.append(event)

    def _note_payment(self, event: Event) -> None:
        self._seen.append(event)
        self.timeline.payment(event)
        if event.kind == "asked" and not self._holds:  # nobody should have
            self.provider.order("take")
            self.provider.order("answer")
