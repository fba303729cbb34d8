"""One call: its worker is killed in the middle of a sentence, and then?"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from recovery.process import DemoFailed
from recovery.timeline import Screen

from recall_livekit.rooms.orders import STANDBY

from . import script
from .caller import Caller, caller
from .house import House, together
from .recording import SLOT_S, Recording
from .telling import Telling, telling

__all__ = ["PATIENCE_S", "Outcome", "Part", "play"]

PATIENCE_S = 8.0
"""So long the caller waits for somebody to speak again."""
STEP_S = 12.0
"""The longest that anything else of the call may take."""
QUIET_S = 0.35
MID_WORD_S = 0.15
CUT_AT = "Friday"
WONDERS_AFTER_S = (2.5, 5.5)
MOST_OVERLAP_S = 0.5
"""The jitter buffer plays a dead voice on for a moment."""


@dataclass(frozen=True, slots=True)
class Part:
    """One call of the demo; `limit` is the longest silence, in seconds, that is promised."""

    name: str
    title: str
    about: str
    limit: float | None = None
    standby: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of a call."""

    part: Part
    room: str
    recording: Recording = field(default_factory=Recording)
    killed_at: float = 0.0
    killed: str = ""
    successor: str | None = None
    silence: float | None = None
    """Seconds of it at the caller's ear; negative where the voices overlap; None: for ever."""
    after: str = ""
    """What the successor said."""
    faults: list[str] = field(default_factory=list)


async def play(
    screen: Screen,
    house: House,
    part: Part,
    meanwhile: Callable[[Outcome], Coroutine[object, object, None]],
) -> Outcome:
    """Play one call; `meanwhile` is done when nothing is measured any more."""
    outcome = Outcome(part, f"{part.name}-{secrets.token_hex(3)}")
    token = house.livekit.token(outcome.room, "caller", script.AGENT)
    async with caller(house.livekit.url, token, script.CALLER_VOICE) as line:
        outcome.recording = line.recording
        async with telling(screen, line) as teller:
            scene = _Scene(house, line, teller, outcome)
            await scene.until_cut()
            if part.limit is None:
                await together(scene.wait_in_vain(), meanwhile(outcome))
            else:
                await scene.until_heard()
                await together(scene.until_booked(), meanwhile(outcome))
    outcome.faults += faults(outcome)
    return outcome


@dataclass(slots=True)
class _Scene:
    house: House
    caller: Caller
    teller: Telling
    outcome: Outcome

    async def until_cut(self) -> None:
        """The caller orders; the agent is killed while it repeats the order."""
        await self._must(lambda: bool(self._speaking()), "no agent came")
        first = self._speaking()[0]
        await self._must(lambda: self._has_said(first, script.GREETING), "it did not greet")
        if self.outcome.part.standby:
            await self._must(self._stood_by, "no standby came")
        ordered = self.caller.recording.now
        await self.caller.say(script.ORDER)
        said = self.caller.said_by
        await self._must(lambda: CUT_AT in said(first, after=ordered), "it did not understand")
        await asyncio.sleep(MID_WORD_S)
        self.outcome.killed, self.outcome.killed_at = first, self.caller.recording.now
        self.house.kill(first)
        self.teller.died(first, self.outcome.killed_at)

    async def wait_in_vain(self) -> None:
        """The caller asks whether anybody is there, and gives up."""
        for after in WONDERS_AFTER_S:
            await self._heard_again(self.outcome.killed_at + after - self.caller.recording.now)
            if self.outcome.successor is None:
                await self.caller.say(script.HELLO)
        await self._heard_again(self.outcome.killed_at + PATIENCE_S - self.caller.recording.now)
        self.teller.fact(self.outcome.killed, "the caller gives up")

    async def until_heard(self) -> None:
        """Somebody else speaks."""
        await self._heard_again(PATIENCE_S)

    async def until_booked(self) -> None:
        """The successor goes on, the caller agrees, and it is done."""
        successor = self.outcome.successor
        if successor is None:
            return
        if await self._says(successor, script.QUESTION):
            await self.caller.say(script.YES)
            await self._says(successor, script.BOOKED)
        self.outcome.after = self.caller.said_by(successor)
        self.outcome.silence = self._silence(successor)  # the old voice may have gone on

    async def _heard_again(self, within: float) -> None:
        """Wait for another voice."""

        def others() -> list[str]:
            return [name for name in self._speaking() if name != self.outcome.killed]

        if await self.caller.until(lambda: bool(others()), within=max(0.0, within)):
            successor = self.outcome.successor = others()[0]
            self.teller.spoke = self.caller.recording.tracks[successor].first_sound(after=0.0)
            self.outcome.silence = self._silence(successor)
            self.teller.fact(successor, f"first word: {told(self.outcome.silence)}")

    def _silence(self, successor: str) -> float:
        tracks = self.caller.recording.tracks
        heard = tracks[successor].first_sound(after=0.0)
        last = tracks[self.outcome.killed].last_sound()
        assert heard is not None
        assert last is not None
        return heard - last

    async def _says(self, name: str, text: str) -> bool:
        return await self.caller.until(lambda: self._has_said(name, text), within=STEP_S)

    def _has_said(self, name: str, text: str) -> bool:
        """Whether these were its words, and have been heard to the end."""
        last = self.caller.recording.tracks[name].last_sound() or 0.0
        quiet = self.caller.recording.now - last > QUIET_S
        return quiet and text in self.caller.said_by(name)

    def _speaking(self) -> list[str]:
        """Whose voices were heard, the first one first."""
        tracks = self.caller.recording.voices()
        first = {track.name: track.first_sound(after=0.0) for track in tracks}
        heard = {name: at for name, at in first.items() if at is not None}
        return sorted(heard, key=lambda name: heard[name])

    def _stood_by(self) -> bool:
        return any(agent.attributes.get(STANDBY) for agent in self.caller.agents())

    async def _must(self, check: Callable[[], bool], otherwise: str) -> None:
        if not await self.caller.until(check, within=STEP_S):
            raise DemoFailed(f"{otherwise} within {STEP_S:.0f} s: see the logs (--keep DIR)")


def told(silence: float | None) -> str:
    """A silence in words."""
    if silence is None:
        return "silence for good"
    if silence <= 0:
        return f"no silence: the voices overlap by {-1000 * silence:.0f} ms"
    return f"{1000 * silence:.0f} ms of silence"


def faults(outcome: Outcome) -> list[str]:
    """What is not as it was promised."""
    if outcome.part.limit is None:
        return ["LiveKit alone brought an agent back"] if outcome.successor else []
    if outcome.silence is None:
        return [f"nobody spoke within {PATIENCE_S:.0f} s of the kill"]
    found = []
    if outcome.silence > outcome.part.limit:
        found.append(f"{told(outcome.silence)}: more than {1000 * outcome.part.limit:.0f} ms")
    if script.GREETING in outcome.after:
        found.append("the caller was greeted again")
    for words in ("Ada", script.QUESTION, script.BOOKED):
        if words not in outcome.after:
            found.append(f"the successor never said {words!r}")
    if (both := overlap(outcome)) > MOST_OVERLAP_S:
        found.append(f"two agents were heard at once for {both:.1f} s")
    return found


def overlap(outcome: Outcome) -> float:
    """Seconds in which both agents were audible."""
    voices = [set((track.audible() / SLOT_S).round()) for track in outcome.recording.voices()]
    return SLOT_S * len(set.intersection(*voices)) if len(voices) > 1 else 0.0
