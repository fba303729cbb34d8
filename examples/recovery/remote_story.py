"""One call over a server: first its worker is killed, then the server itself, mid-call."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from recall_livekit import Recall

from .cast import STEP_S, Cast
from .check import arrived, entries_from
from .outage import Outage, OutageTimeline
from .process import Process, Server, Worker
from .script import Caller
from .story import MID_WORD_S, Story
from .wire import Event

__all__ = ["RemoteStory"]

WORDS_BEFORE = 5
"""So many words of a sentence are heard before its worker, or the server, is killed."""
REPLIES_IN_OUTAGE = 2
WISHES = ("Could we sit outside?", "And one of us needs a high chair.")


@dataclass(kw_only=True)
class RemoteStory(Story):
    """Tells it. Whatever is waited for, all that anybody tells meanwhile is shown."""

    recalls: bool = True
    cast: Cast
    reader: Recall
    """Reads the records through the server, as any application may."""
    call_id: str
    start_server: Callable[[], Awaitable[Server]]
    timeline: OutageTimeline = field(init=False)
    caller: Caller = field(default_factory=lambda: Caller(*WISHES))
    said: list[dict[str, Any]] = field(default_factory=list)
    """Every turn and note that was told, in its order, acknowledged or not."""
    faults: list[str] = field(default_factory=list)
    """What was wrong with the records that had waited."""
    _chain_before: int = 0
    _said_before: int = 0
    """How long the chain was, and how much was said, when the server was killed."""
    _told: set[tuple[str, str]] = field(default_factory=set)
    _unanswered: deque[str] = field(default_factory=deque)
    _under_way: str = ""

    async def begin(self, first: Worker, second: Worker) -> None:
        """Let the first worker take the call, and the second wait for it."""
        now = time.monotonic()
        self.timeline = OutageTimeline(self.screen, self.recalls, now)
        self.timeline.server("answers", now)
        first.order("go", speed=1.0)
        await self._until_told(first, "lease")
        second.order("go", speed=1.0)
        await self._until_told(second, "standby")

    async def worker_dies(self, first: Worker) -> None:
        """Kill the first worker in the middle of its second sentence. Nobody tells the second."""
        await self._answer(first)
        await self._until_mid_sentence()
        self.said_before = list(self.caller.said)
        killed_at = time.monotonic()
        died_at = await self.cast.kill(first)
        for event in await asyncio.wait_for(self.cast.last_words(first), STEP_S):
            self._note(first, event)
        self.timeline.killed(first.number, killed_at)
        self.timeline.died(first.number, died_at)

    async def server_dies(self, server: Server, second: Worker) -> None:
        """Kill the server while the second worker talks; two replies have to do without it."""
        await self._answer(second)
        await self._until_mid_sentence()
        self._chain_before = len(await entries_from(self.reader, self.call_id, 0))
        self._said_before = len(self.said)
        killed_at = time.monotonic()
        self.timeline.server_killed(killed_at, await self.cast.kill(server))
        for _ in range(REPLIES_IN_OUTAGE):
            await self._answer(second)
        replies = len(self.timeline.replies)
        await self._wait(lambda: len(self.timeline.replies) > replies)

    async def server_returns(self) -> None:
        """Start it again where it was; return when nothing waits any more, and all was found."""
        server = self.cast.join(await self.start_server())
        self.timeline.server_started(server.pid, time.monotonic())
        await self._wait(lambda: self.timeline.up and not self.timeline.waiting)
        said = self.said[self._said_before :]
        entries = await entries_from(self.reader, self.call_id, self._chain_before)
        found, faults = arrived(entries, said)
        self.faults += faults
        how = "not as they were said" if faults else "each once, in order"
        self.timeline.drained(f"{found} records arrived, {how}", time.monotonic())

    async def end(self, worker: Worker) -> None:
        """Hang up; returns when the worker has written everything and ended."""
        worker.order("end")
        await self._until_told(worker, "ended")

    @property
    def outage(self) -> Outage:
        """The server's absence, once it was killed."""
        assert self.timeline.outage is not None
        return self.timeline.outage

    # --- inside -------------------------------------------------------------------------------

    async def _agent_turn(self, worker: Worker) -> str:
        await self._wait(lambda: self._unanswered)
        return self._unanswered.popleft()

    async def _until_mid_sentence(self) -> None:
        """Return in the middle of a sentence, with all that was said before it acknowledged."""
        await self._wait(
            lambda: (
                len(self._under_way.split()) >= WORDS_BEFORE
                and len(self.acknowledged) == len(self.said)
            )
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wait(lambda: False), MID_WORD_S)

    async def _until_told(self, worker: Worker, what: str) -> None:
        await self._wait(lambda: (worker.name, what) in self._told)

    async def _wait(self, enough: Callable[[], object]) -> None:
        """Show what everybody tells until it is enough."""
        await self.cast.until(enough, self._note)

    def _note(self, worker: Process, event: Event) -> None:
        super()._note(worker, event)
        match event.kind:
            case "word":
                self._under_way += event["text"]
            case "turn":
                self._under_way = ""
                self.said.append({"kind": "turn", **event.fields})
                if event.by_agent:
                    self._unanswered.append(event["text"])
            case "tool" if event["name"] == "update_working_state":
                self.said.append({"kind": "note", "id": event["id"], "changes": event["arguments"]})
            case "state":
                self._told.add((worker.name, event["state"]))
            case "lease" | "ended":
                self._told.add((worker.name, event.kind))
