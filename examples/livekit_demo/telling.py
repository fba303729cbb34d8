"""Shows a call as it happens: who is in the room, what is said, how it sounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

from recovery.strips import Strip, Strips
from recovery.timeline import Row, Screen

from recall_livekit.rooms.orders import STANDBY

from .caller import CALLER, Caller, Line

__all__ = ["Telling", "telling"]

EVERY_S = 0.1
SPAN_S = 20.0
VOICES = ("worker 1", "worker 2", CALLER)


class Telling:
    """Turns what the caller sees and hears into rows and strips. Times are the recording's."""

    def __init__(self, screen: Screen, caller: Caller) -> None:
        self.screen = screen
        self.caller = caller
        self.killed: tuple[str, float] | None = None
        self.spoke: float | None = None
        self._known = 0
        self._waiting: list[Line | Row] = []
        self._seen: dict[str, str] = {}
        self._column = 1

    def fact(self, name: str, text: str) -> None:
        """Something that is so from now on."""
        self._add("fact", name, self.caller.recording.now, text)

    def died(self, name: str, at: float) -> None:
        """A worker was killed; from here on, time counts from it. Its sentence ends here."""
        self._pull()
        for item in self._waiting:
            if isinstance(item, Line):
                item.cut = item.who == name and not item.over
        self._show()
        self.killed = name, at
        self._add("death", name, at, "SIGKILL, to the worker and all its processes")

    def tick(self) -> None:
        """Show how it stands."""
        self._members()
        self._pull()
        self._show()
        self.screen.strips(self.strips())

    def strips(self) -> Strips:
        """The voices as they are in the recording."""
        recording = self.caller.recording
        strips = []
        for name in VOICES:
            known = name in recording.tracks
            loudness = recording.tracks[name].levels().tolist() if known else []
            strips.append(Strip(name, _kind(name), loudness, *self._silence(name)))
        return Strips(strips, 0.0, SPAN_S)

    def _silence(self, name: str) -> tuple[float | None, float | None]:
        if self.killed is None or self.killed[0] != name:
            return None, None
        return self.killed[1], self.caller.recording.now if self.spoke is None else self.spoke

    # --- rows ---------------------------------------------------------------------------------

    def _members(self) -> None:
        for agent in self.caller.agents():
            standing = "stands by, silent" if agent.attributes.get(STANDBY) else "has the call"
            if self._seen.get(agent.identity) != standing:
                self._seen[agent.identity] = standing
                self.fact(agent.name, standing)

    def _add(self, kind: Literal["fact", "death"], name: str, at: float, text: str) -> None:
        self._pull()
        self._waiting.append(Row(1 + VOICES.index(name), kind, self._when(at), text))

    def _pull(self) -> None:
        """Take the lines that began since."""
        self._waiting += self.caller.lines[self._known :]
        self._known = len(self.caller.lines)

    def _show(self) -> None:
        """Show what is whole, in the order in which it began, and the line that grows."""
        while self._waiting and (row := self._whole(self._waiting[0])):
            self.screen.row(row)
            self._waiting.pop(0)
        first = self._waiting[0] if self._waiting else None
        self.screen.growing(self._spoken(first) if isinstance(first, Line) else None)

    def _whole(self, item: Line | Row) -> Row | None:
        if isinstance(item, Row):
            return item
        return self._spoken(item) if item.over or item.cut else None

    def _spoken(self, line: Line) -> Row:
        mark: Literal["", "cut"] = "cut" if line.cut else ""
        column = self._column_of(line.who)
        return Row(column, _kind(line.who), self._when(line.at), line.text, mark)

    def _column_of(self, name: str) -> int:
        """A worker's own column; the caller is shown in that of the agent who spoke last."""
        if name in VOICES[:2]:
            self._column = 1 + VOICES.index(name)
        return self._column

    def _when(self, at: float) -> str:
        if self.killed is None:
            return f"{at:.1f} s"
        after = at - self.killed[1]
        return f"+{after * 1000:.0f} ms" if after < 1 else f"+{after:.1f} s"


def _kind(name: str) -> Literal["agent", "caller"]:
    return "caller" if name == CALLER else "agent"


@asynccontextmanager
async def telling(screen: Screen, caller: Caller) -> AsyncIterator[Telling]:
    """Show the call within this block, and once more, whole, at its end."""
    teller = Telling(screen, caller)

    async def keep_telling() -> None:
        while True:
            teller.tick()
            await asyncio.sleep(EVERY_S)

    task = asyncio.create_task(keep_telling())
    try:
        yield teller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        teller.tick()
        screen.strips(teller.strips(), final=True)
