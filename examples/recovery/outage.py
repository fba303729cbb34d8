"""The rows of a call whose records are on a server, which is killed and comes back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .timeline import COLUMNS, Gauge, GaugeState, Row, Timeline
from .wire import Event

__all__ = ["Outage", "OutageTimeline", "Reply"]

SERVER = len(COLUMNS)


@dataclass(slots=True)
class Reply:
    """What the caller waited for it: milliseconds from its last word to the first sound."""

    waited: float
    up: bool
    """Whether the server answered when the sound came."""
    waiting: int
    """How many records waited for the server then."""
    text: str = ""


@dataclass(slots=True)
class Outage:
    """When the server was killed, answered again, and had all that waited for it."""

    killed_at: float
    started: bool = False
    back_at: float = math.inf
    drained_at: float = math.inf
    most_waiting: int = 0


@dataclass
class OutageTimeline(Timeline):
    """Times each reply, and shows what the server goes through in a column of its own."""

    outage: Outage | None = None
    waiting: int = 0
    spooled: int = 0
    """How many records are not stored yet, as the worker tells, and so many are on its disk."""
    replies: list[Reply] = field(default_factory=list)
    _heard_at: float | None = None
    _reply: Reply | None = None
    _noted: list[str] = field(default_factory=list)
    _epoch: int = 0
    _shown_before: str = ""
    """What was shown already of the sentence that is being said."""

    @property
    def up(self) -> bool:
        """Whether the server answers."""
        return self.outage is None or self.outage.back_at < math.inf

    def show(self, worker: int, event: Event) -> None:
        match event.kind:
            case "lag":
                self._lag(worker, event)
            case "listening" if self.outage is not None:
                self.outage.back_at = event.at
                self.server("answers again: same port, same store", event.at)
            case "state" if event["state"] == "standby":
                self._fact(worker, event.at, "joined as a standby: silent")
            case "read":
                pass  # shown with the lease: a standby goes on with what it is given then
            case "lease":
                super().show(worker, event)
                super().show(worker, Event("read", event.at, event.fields))
            case "heard":
                self._heard_at = event.at
                super().show(worker, event)
            case "word":
                self._add_to_reply(event["text"])
                super().show(worker, event)
            case _:
                super().show(worker, event)
        self.screen.gauge(self._gauge(event.at))

    def server_killed(self, at: float, died_at: float) -> None:
        """Rows wait for it no more; what is being said goes on below."""
        for row in self._unacknowledged.values():
            row.mark = "waiting"
        self._unacknowledged.clear()
        self.holds = False
        self._part_growing()
        self.outage, self.killed_at = Outage(at), at
        self._add(Row(SERVER, "death", self._when(at), "SIGKILL, while worker 2 talks"))
        self.died(SERVER, died_at)

    def server_started(self, pid: int, at: float) -> None:
        """It is on its way back."""
        assert self.outage is not None
        self.outage.started = True
        self.server(f"started again: process {pid}", at)

    def drained(self, found: str, at: float) -> None:
        """Nothing waits any more, and this was found at the server."""
        self.holds = True
        self.server(found, at)

    def server(self, text: str, at: float) -> None:
        """Show something in the server's column."""
        self._fact(SERVER, at, text)

    # --- inside ---------------------------------------------------------------------------------

    def _fact(self, column: int, at: float, text: str) -> None:
        self._add(Row(column, "fact", self._when(at), text))

    def _told(self, event: Event) -> str:
        """Of the working state only what is new in it: it grows with every turn."""
        if event.kind != "tool" or "decisions" not in event["arguments"]:
            return super()._told(event)
        before, self._noted = self._noted, event["arguments"]["decisions"]
        return f"noted: {', '.join(one for one in self._noted if one not in before)}"

    def _lag(self, worker: int, event: Event) -> None:
        before, self._epoch = self._epoch, event["epoch"]
        self.waiting, self.spooled = event["waiting"], event["spooled"]
        if self.outage is None:
            return
        if self._epoch > before:
            text = f"the lease had lapsed; taken again: epoch {self._epoch}"
            self._fact(worker, event.at, text)
        self.outage.most_waiting = max(self.outage.most_waiting, self.waiting)
        if self.up and not self.waiting:
            self.outage.drained_at = min(self.outage.drained_at, event.at)

    def _gauge(self, at: float) -> Gauge:
        if self.outage is None or self.up:
            return Gauge("answers", self.waiting, self.spooled)
        state: GaugeState = "starts" if self.outage.started else "down"
        return Gauge(state, self.waiting, self.spooled, at - self.outage.killed_at)

    # --- what is being said ---------------------------------------------------------------------

    def _part_growing(self) -> None:
        """Show the words so far; the rest of the sentence gets a row of its own."""
        if (row := self._growing) is None:
            return
        row.mark, self._shown_before = "going on", row.text
        self._add(row)
        self._growing = Row(row.column, row.kind, "", "...")

    def _shown(self, text: str) -> str:
        before, self._shown_before = self._shown_before.strip(), ""
        rest = text.strip().removeprefix(before).strip()
        return f"... {rest}" if before else rest

    def _sound(self, worker: int, event: Event) -> None:
        super()._sound(worker, event)
        self.waiting, self.spooled, self._reply = event["waiting"], event["spooled"], None
        if self._heard_at is None or self._growing is None:
            return
        waited, self._heard_at = (event.at - self._heard_at) * 1000, None
        self._growing.remark = self._told_wait(waited)
        self._reply = Reply(waited, self.up, self.waiting)
        self.replies.append(self._reply)
        if not self.up:
            on_disk = f", {self.spooled} of them on its disk" if self.spooled else ""
            waiting = f"{self.waiting} records wait at worker {worker}"
            self.server(f"down: {waiting}{on_disk}", event.at)

    def _add_to_reply(self, words: str) -> None:
        if self._reply is not None:
            self._reply.text += words

    def _told_wait(self, waited: float) -> str:
        before = [reply.waited for reply in self.replies if reply.up]
        beside = f"; {before[-1]:.0f} ms before the kill" if before and not self.up else ""
        return f"after {waited:.0f} ms{beside}"
