"""A call whose agent is killed in the middle of a sentence."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .caller import Caller
from .stage import Job, Stage

NUMBER = "seven four"
TAIL_S = 0.5  # the jitter buffer plays a dead voice on for some 0.2 s


@dataclass(frozen=True, slots=True)
class Crash:
    """Who was killed, when (monotonic seconds), who spoke next, after how long a silence."""

    killed: Job
    successor: Job
    at: float
    gap: float
    """Seconds at the caller's ear; negative where the voices overlap."""


async def nothing() -> None:
    pass


async def crash(
    stage: Stage,
    caller: Caller,
    room: str,
    *,
    standby: bool = False,
    meanwhile: Callable[[], Awaitable[None]] = nothing,
) -> Crash:
    """The caller tells a number, the agent dies while it answers, another one comes.

    Returns when the caller hears the successor, and the killed one no more. With `standby` the
    successor was dispatched to the room before the crash, else it is right after it, or after
    what happens `meanwhile`.
    """
    first = await begin(stage, caller, room)
    second = await stand_by(stage, caller, room, first) if standby else None
    await converse(caller, first)
    killed_at = time.monotonic()
    first.kill()
    await meanwhile()
    if second is None:
        await stage.dispatch(room)
        second = await stage.job(room, besides=[first])
    came = await caller.hears(second.identity, after=killed_at, within=10)
    await caller.hears(second.identity, after=came.at + TAIL_S, within=10)
    gap = caller.timeline.gap(first.identity, second.identity)
    return Crash(first, second, killed_at, gap)


async def begin(stage: Stage, caller: Caller, room: str) -> Job:
    """Brings the first agent into the room; returns when it has greeted the caller."""
    await stage.dispatch(room)
    first = await stage.job(room)
    await caller.hears_words("hello number", first.identity, within=10)
    return first


async def stand_by(stage: Stage, caller: Caller, room: str, first: Job) -> Job:
    """Dispatches a second agent to the room of a live one; returns when it waits there."""
    await stage.dispatch(room)
    second = await stage.job(room, besides=[first])
    await stage.settled(room, second)
    return second


async def converse(caller: Caller, agent: Job) -> None:
    """The caller says the number; returns when the agent is well into its answer."""
    began = time.monotonic()
    await caller.say(f"my number is {NUMBER}")
    await caller.hears_words(
        f"{NUMBER} alpha bravo charlie", agent.identity, after=began, within=10
    )
