"""A call that survives its worker: run it and watch.

A caller books a table. Two worker processes are shown side by side. The first is killed (SIGKILL)
in the middle of a sentence. The second reads the records, takes the lease and goes on: it does not
greet again, asks nothing again, and finishes what the caller wants. Then the same call once more
without recall, so that the difference is seen.

    make demo                                or
    python examples/call_recovery.py         needs: pip install ".[demo,testing]"

    --keep DIR   keep the records (and the workers' logs) in DIR
    --plain      plain lines, as when the output is no terminal

Both workers run a real LiveKit `AgentSession`; room, caller, voice and model are scripted, so no
key is needed. With OPENAI_API_KEY set, the model is OpenAI's (the caller stays scripted).

It ends with exit code 0 only if every record that was acknowledged is found again, once and in its
order, and (scripted model) the second worker neither greeted nor asked again.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path
from urllib.parse import quote

from recovery.check import Verdict, judge
from recovery.command import START_S, has_key, run_demo
from recovery.process import Worker, workers
from recovery.story import Story
from recovery.timeline import Screen

from recall_livekit.stores.sqlite import SqliteStore

FAST = 4

INTRODUCTION = (
    "A caller books a table. Worker 1 has the call; it will be killed in the middle of a sentence.",
    "Worker 2 is an idle process, warm, as in a pool.",
    "A time with a plus counts from the kill.",
    "A check mark or [recorded] means acknowledged: on disk.",
)
AGAIN = (f"The same words, {FAST} times as fast up to the kill.", "Worker 2 is just as warm.")
CUT_NOTE = "(words under way are written down every quarter of a second, turns at once)"
FOOTNOTE = (
    "Model and voice are scripted and answer at once: a real model adds its own time to both "
    "silences."
)
REAL_MODEL = "The model is a real one, in both calls; voice and caller are scripted."


async def with_recall(screen: Screen, directory: Path) -> tuple[Story, Verdict]:
    """Show the call with recall, and check it."""
    records, call_id = directory / "records", f"room-{secrets.token_hex(4)}"
    story = Story(screen, recalls=True)
    url = f"sqlite:///{quote(str(records))}"
    async with workers(directory, "recall", url, call_id) as (first, second):
        await warm(first, second)
        screen.columns((first.pid, second.pid))
        await story.until_cut(first)
        await story.take_over(first, second)
        await story.until_booked(second)
        await story.end(second)
    return story, await judge(SqliteStore(records), call_id, story.acknowledged)


async def without(screen: Screen, directory: Path) -> Story:
    """Show the same call without recall, up to what the second worker asks."""
    story = Story(screen, recalls=False)
    async with workers(directory, "plain", "memory:", "unused") as (first, second):
        await warm(first, second)
        screen.columns((first.pid, second.pid))
        await story.until_cut(first, speed=FAST)
        await story.take_over(first, second)
        await story.until_asked(second)
    return story


async def warm(*started: Worker) -> None:
    """Wait until the workers have loaded everything, like idle processes of a pool."""
    async with asyncio.timeout(START_S):
        for worker in started:
            await worker.next()


def conclude(screen: Screen, story: Story, verdict: Verdict) -> None:
    """Say what became of the records."""
    counted = f"{verdict.acknowledged} records acknowledged, {verdict.found} found"
    if verdict.faults:
        screen.say(counted, good=False)
        for fault in verdict.faults:
            screen.say(fault, good=False)
    else:
        screen.say(f"{counted}: nothing lost", good=True)
    screen.say(f'The caller had heard: "{story.heard.strip()} --"')
    screen.say(f'The briefing had:     "{story.cut} --"')
    screen.say(CUT_NOTE)


def compare(screen: Screen, recalled: Story, plain: Story) -> None:
    """Put both calls side by side."""
    questions = (
        "greeted again?",
        "asked again?",
        "words of the caller known",
        "silence until the first word",
        "the table",
    )
    rows = zip(questions, told(recalled), told(plain), strict=True)
    screen.table([("after the kill", "with recall", "without"), *rows])
    screen.say(REAL_MODEL if has_key() else FOOTNOTE)


def told(story: Story) -> tuple[str, str, str, str, str]:
    """Return a column of the comparison."""
    known, words = story.words_known
    return (
        "yes" if story.greeted_again else "no",
        f"yes: {', '.join(story.asked_again)}" if story.asked_again else "no",
        f"{known} of {words}",
        f"{story.silence or 0:.0f} ms",
        "booked" if story.bookings else "begun from the beginning",
    )


async def demo(screen: Screen, directory: Path) -> int:
    """Show both calls, and what is to be learned from them."""
    screen.title("A call that survives its worker", *INTRODUCTION)
    recalled, verdict = await with_recall(screen, directory)
    verdict.faults += [] if has_key() else recalled.misbehaved  # a real model is free in its words
    conclude(screen, recalled, verdict)
    screen.title("The same call without recall", *AGAIN)
    compare(screen, recalled, await without(screen, directory))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(run_demo(demo, "Watch a call survive its worker."))
