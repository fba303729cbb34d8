"""A call in the middle of which its agent is lost, and what must be true of it afterwards."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from recall_livekit import Recall, Turn
from recall_livekit.testing.leash import eventually

from .caller import Caller
from .dialogue import GREETING, NUMBER, TELL_NUMBER
from .stage import Stage
from .workers import Job

TAIL_S = 0.5  # the jitter buffer plays a dead voice on for some 0.2 s
SANE_GAP_S = 5.0
CLEAN_S = 5.0
BEGINNING = f"thanks {NUMBER} alpha bravo charlie"


@dataclass(frozen=True, slots=True)
class Loss:
    """Who was lost, when (monotonic seconds), and who spoke next, after how long a silence."""

    lost: Job
    successor: str
    at: float
    gap: float
    """Seconds at the caller's ear; negative where the voices overlap."""


class Scene:
    """One caller in one room of a stage, and the call's records."""

    caller: Caller

    def __init__(
        self, stage: Stage, recall: Recall, room: str, asks_for: str | None = None
    ) -> None:
        self.stage, self.recall, self.room = stage, recall, room
        self._asks_for = asks_for
        self._durable: Sequence[Turn] = ()
        self._told = 0
        self._line = AsyncExitStack()

    # --- what happens -------------------------------------------------------------------------

    async def call(self) -> None:
        """The caller comes into the room, for the first time or once more."""
        caller = self.stage.caller(self.room, asks_for=self._asks_for)
        self.caller = await self._line.enter_async_context(caller)

    async def hang_up(self) -> None:
        """The caller leaves."""
        await self._line.aclose()

    async def begin(self) -> Job:
        """Brings the first agent into the room; returns when it has greeted the caller."""
        await self.stage.dispatch(self.room)
        first = await self.stage.job(self.room)
        await self.greeted(first.identity)
        return first

    async def greeted(self, agent: str) -> None:
        """Returns when the caller has heard this agent's greeting to its end."""
        await self.caller.hears(agent, after=0, within=10)
        await self.caller.reads(GREETING, agent, within=10)

    async def converse(self, agent: Job) -> None:
        """The caller tells the number; returns when the agent is well into its answer."""
        before = self.caller.read(agent.identity).count(BEGINNING)
        self._told += 1
        await self.caller.say(TELL_NUMBER)
        await self.caller.reads(BEGINNING, agent.identity, times=before + 1, within=10)

    async def talking(self) -> Job:
        """An agent that is well into its answer."""
        agent = await self.begin()
        await self.converse(agent)
        return agent

    async def stood_by(self) -> tuple[Job, Job]:
        """An agent, and the standby that waits beside it, which is another worker's."""
        await self.stage.dispatch(self.room)
        agent = await self.stage.job(self.room)
        with self.stage.worker_of(agent).full():
            await self.greeted(agent.identity)
            standby = await self.stage.job(self.room, besides=[agent], within=15)
            if standby.worker == agent.worker:  # LiveKit learned too late that it is full
                standby.kill()
                standby = await self.stage.job(self.room, besides=[agent, standby], within=15)
            await self.stage.settled(self.room, standby)
        return agent, standby

    async def lose(
        self, agent: Job, how: Callable[[], Awaitable[None] | None], *, within: float = 10
    ) -> Loss:
        """Something happens to the agent; returns when the caller hears another one instead."""
        self._durable = await self.recall.turns(self.room)
        at = time.monotonic()
        if (going_on := how()) is not None:
            await going_on
        old, hears = agent.identity, self.caller.hears
        came = await hears(besides=[old], after=at, within=within)
        await hears(came.identity, after=came.at + TAIL_S, within=within)
        return Loss(agent, came.identity, at, self.caller.timeline.gap(old, came.identity))

    # --- what must be true --------------------------------------------------------------------

    async def assert_resumed(self, loss: Loss) -> None:
        """The successor tells the number back, by voice and in writing, and does not greet."""
        await self.caller.hears_words(NUMBER, loss.successor, within=5)
        await self.caller.reads(NUMBER, loss.successor, within=5)
        assert "hello" not in self.caller.read(loss.successor)
        await self.assert_recorded()

    async def assert_recorded(self) -> None:
        """No acknowledged turn is lost or doubled, and the words at the cut are known."""
        turns = await self.recall.turns(self.room)
        assert list(turns[: len(self._durable)]) == list(self._durable)
        assert [turn.seq for turn in turns] == list(range(1, len(turns) + 1))
        said = [(turn.role, turn.content.strip()) for turn in turns]
        assert said[:2] == [("assistant", GREETING), ("user", TELL_NUMBER)]
        assert said.count(("assistant", GREETING)) == 1
        assert said.count(("user", TELL_NUMBER)) == self._told
        partials = (await self.recall.read(self.room)).partials
        cut = [(partial.role, partial.text) for partial in partials]
        assert any(text.startswith("Thanks") for _, text in (*said, *cut)), (said, cut)

    async def assert_alone(self, identity: str) -> None:
        """In the end this is the room's one agent: the participant of a dead one is gone, too."""

        async def alone() -> bool:
            return await self.stage.agents(self.room) == {identity}

        await eventually(alone, within=CLEAN_S)
        after = time.monotonic()
        await self.caller.hears(identity, after=after, within=5)
        assert self.caller.timeline.voices(after=after) == [identity]


@asynccontextmanager
async def scene(stage: Stage, room: str, *, asks_for: str | None = None) -> AsyncIterator[Scene]:
    """A caller alone in a new room, on a stage on which all that a scene before broke is mended."""
    await stage.whole()
    async with Recall.open(stage.records, spool=False) as recall:
        played = Scene(stage, recall, room, asks_for)
        try:
            await played.call()
            yield played
        finally:
            await played.hang_up()
            await stage.close(room)


def report(what: str, loss: Loss) -> None:
    """Says the figure, and fails only where it would be no recovery at all."""
    print(f"{what}: {1000 * loss.gap:.0f} ms of silence at the caller's ear")
    assert loss.gap < SANE_GAP_S
