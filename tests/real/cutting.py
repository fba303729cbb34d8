"""An agent is killed while it says one long sentence: which of its words does the caller hear?"""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from .dialogue import bare
from .recital import WORD_S, WORDS
from .scene import Scene, scene
from .stage import Stage
from .workers import Job, Part

EARLIEST_S, LATEST_S = 0.5, 0.75 * len(WORDS) * WORD_S
"""After its first sound: so a kill comes in the sentence, with words before it and after it."""
HEARD_OUT_S = 2 * len(WORDS) * WORD_S


@dataclass(frozen=True, slots=True)
class Cut:
    """One kill, and the words of the sentence: as heard before it, as known, as heard after it."""

    moment: float
    before: tuple[str, ...]
    known: tuple[str, ...]
    """What the records had at the kill."""
    after: tuple[str, ...]

    @property
    def doubled(self) -> tuple[str, ...]:
        """The words that were heard from both agents."""
        return tuple(word for word in WORDS if word in self.before and word in self.after)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The words that were heard from neither."""
        return tuple(word for word in WORDS if word not in (*self.before, *self.after))

    @property
    def unheard(self) -> tuple[str, ...]:
        """The words that the records had though nobody had heard them."""
        return tuple(word for word in self.known if word not in self.before)

    def __str__(self) -> str:
        last, first = " ".join(self.before[-3:]), " ".join(self.after[:3])
        return (
            f"killed after {self.moment:.2f} s, {len(self.known)} words known: {last} | {first}: "
            f"{len(self.doubled)} twice, {len(self.skipped)} never"
        )


@asynccontextmanager
async def cutting_stage(directory: Path) -> AsyncIterator[Stage]:
    """Two workers that watch each other."""
    part = Part(watcher=True)
    async with Stage(directory, part, part) as stage:
        yield stage


def moments(count: int, *, seed: int) -> Sequence[float]:
    """When to kill, in seconds after the first sound; the same ones for the same seed."""
    chosen = random.Random(seed)
    return [round(chosen.uniform(EARLIEST_S, LATEST_S), 3) for _ in range(count)]


async def cut(stage: Stage, *when: float) -> list[Cut]:
    """One call whose agent is killed at this moment of its speech, then its successor, and so on;
    returns when the sentence was heard out."""
    async with scene(stage, f"recital-{'-'.join(map(str, when))}") as here:
        await stage.dispatch(here.room)
        agents = [await stage.job(here.room)]
        known = []
        for moment in when:
            words, successor = await _kill(here, agents[-1], moment)
            known.append(words)
            agents.append(successor)
        await here.caller.hears_words(WORDS[-1], agents[-1].identity, within=HEARD_OUT_S)
        heard = [here.caller.timeline.words(WORDS, agent.identity) for agent in agents]
        return [
            Cut(moment, _all(heard[:number]), known[number - 1], _all(heard[number:]))
            for number, moment in enumerate(when, 1)
        ]


async def _kill(here: Scene, agent: Job, moment: float) -> tuple[tuple[str, ...], Job]:
    """Kills it so long after its first sound; which words the records have then, and who came."""
    known: list[str] = []

    async def killed_and_read() -> None:
        agent.kill()
        known.extend(bare((await here.recall.read(here.room)).text))

    began = await here.caller.hears(agent.identity, after=0, within=10)
    await here.caller.hears(agent.identity, after=began.at + moment, within=10)
    loss = await here.lose(agent, killed_and_read)
    successor = next(job for job in here.stage.jobs(here.room) if job.identity == loss.successor)
    return tuple(word for word in WORDS if word in known), successor


def _all(heard: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(word for words in heard for word in words)
