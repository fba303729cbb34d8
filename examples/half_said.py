"""Half said, and half paid: a call whose worker is killed at the worst moments. Watch it.

A caller buys tickets. Worker 1 is killed (SIGKILL) in the middle of a sentence: worker 2 says the
rest of it. Worker 2 is killed while it charges the caller's card, when the money was taken and
before it hears of that: worker 3 looks the charge up instead of making it again. Worker 3 is killed
in its charge, too, this time before any money was taken, which looks the same: worker 4 looks it up
and makes it. Then the same call once more without recall, so that the difference is seen.

    make demo-half-said                  or
    python examples/half_said.py         needs: pip install ".[demo,testing]"

    --keep DIR   keep the records, the provider's ledger and all logs in DIR
    --plain      plain lines, as when the output is no terminal

The workers run a real LiveKit `AgentSession` with its audio; room, caller, voice and model are
scripted, so no key and no server is needed. The payment provider is a process of its own that
charges as often as it is asked.

It ends with exit code 0 only if the provider charged everything once, the records know every
charge, no word of the sentence was left out, and every acknowledged record is found again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from half_said_demo.check import judge_charges
from half_said_demo.house import House, house
from half_said_demo.script import CENTS, OFFER, TICKETS
from half_said_demo.story import Story
from recovery.check import Verdict, judge
from recovery.command import run_demo
from recovery.timeline import Screen

from recall_livekit import Recall
from recall_livekit.stores.sqlite import SqliteStore

FAST = 4

INTRODUCTION = (
    "A caller buys tickets. Three workers will be killed: one in the middle of a sentence, one",
    "when the money was taken and before it hears of that, one right before money is taken.",
    "A time with a plus counts from the last kill.",
    "A check mark or [recorded] means acknowledged: on disk.",
)
AGAIN = (f"Killed when the money was taken; {FAST} times as fast up to there.",)
FOOTNOTE = "Model and voice are scripted and answer at once: a real model adds its own time."


async def with_recall(screen: Screen, directory: Path) -> tuple[Story, Verdict]:
    """Show the call with recall, and check it."""
    async with house(directory, "recall", workers=4) as home:
        first, second, third, fourth = home.workers
        story = Story(screen, home.cast, home.provider, recalls=True)
        screen.columns(*home.heads(first, second))
        story.begin(first)
        await story.killed_in_mid_sentence(first, second)
        await story.killed_when_paid(second, third)
        screen.columns(*home.heads(third, fourth))
        await story.answers(third)
        await story.killed_before_paid(third, fourth)
        await story.pays()
        await story.end(fourth)
    return story, await check(home, story)


async def without(screen: Screen, directory: Path) -> tuple[Story, int]:
    """Show it without, up to where the caller pays again; and how often the card was charged."""
    async with house(directory, "plain", workers=2) as home:
        first, second = home.workers
        story = Story(screen, home.cast, home.provider, recalls=False, speed=FAST)
        screen.columns(*home.heads(first, second))
        story.begin(first)
        await story.answers(first)
        await story.answers(first)
        await story.killed_when_paid(first, second)
        await story.answers(second)
        story.rest = await story.answers(second)
        await story.pays()
    return story, len(home.ledger.receipts(TICKETS))


async def check(home: House, story: Story) -> Verdict:
    """Hold what the caller paid and heard against the records."""
    verdict = await judge(SqliteStore(home.records), home.call_id, story.acknowledged)
    async with Recall(SqliteStore(home.records)) as recall:
        verdict.faults += judge_charges(home.ledger, await recall.read(home.call_id))
    _, never = story.words
    if never:
        verdict.faults.append(f"{never} words of the sentence were never said")
    return verdict


def conclude(screen: Screen, story: Story, verdict: Verdict) -> None:
    """Say what became of the money, the words and the records."""
    for fault in verdict.faults:
        screen.say(fault, good=False)
    if not verdict.faults:
        screen.say(f"{len(CENTS)} charges, each made once, and the records know them", good=True)
    counted = f"{verdict.acknowledged} records acknowledged, {verdict.found} found"
    lost = verdict.found < verdict.acknowledged
    screen.say(counted if lost else f"{counted}: nothing lost", good=not lost)
    screen.say(f'The caller had heard:   "{story.heard} --"')
    screen.say(f'The next worker said: "-- {story.rest}"')


def compare(screen: Screen, story: Story, plain: Story, paid: int) -> None:
    """Put both calls side by side."""
    twice, _ = story.words
    words = len(OFFER.split())
    again = words if OFFER in plain.rest else 0
    rows = [
        ("after the kills", "with recall", "without"),
        ("the tickets were charged", times(1), times(paid)),
        ("words of the offer said again", f"{twice} of {words}", f"{again} of {words}"),
        ("asked again", times(story.caller.asked_again), times(plain.caller.asked_again)),
        ("silence until the first word", told(story), told(plain)),
    ]
    screen.table(rows)
    screen.say(FOOTNOTE)


def times(count: int) -> str:
    return {0: "no", 1: "once"}.get(count, f"{count} times")


def told(story: Story) -> str:
    return f"{story.silences[0]:.0f} ms"


async def demo(screen: Screen, directory: Path) -> int:
    """Show both calls, and what is to be learned from them."""
    screen.title("Half said, and half paid", *INTRODUCTION)
    story, verdict = await with_recall(screen, directory)
    conclude(screen, story, verdict)
    if verdict.faults:
        return verdict.exit_code
    screen.title("The same call without recall", *AGAIN)
    plain, paid = await without(screen, directory)
    compare(screen, story, plain, paid)
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(run_demo(demo, "Watch a call whose worker dies half said.", real_model=False))
