"""A worker dies in the middle of a sentence, on a real LiveKit server: run it, watch, and listen.

A caller books a table, three times, over WebRTC. Each time the worker that has the call is killed
(SIGKILL, with all its processes) while it speaks; another worker is free. LiveKit alone: silence.
With recall_livekit, whose watchers run inside the workers: the other one goes on, at the words at
which the first was cut. With a standby: there is hardly a gap. The silence is measured in what the
caller hears, and each call is written as a WAV.

    make demo-livekit                     or
    python examples/livekit_recovery.py   needs: pip install ".[demo]", and a
                                          livekit-server (LIVEKIT_SERVER_BIN, or on the path)

    --keep DIR   keep the recordings, the records and the logs in DIR
    --plain      plain lines, as when the output is no terminal

Server, workers, rooms and audio are real, the voices are espeak-ng's. The model is scripted, and so
is the recogniser (it tells the caller's sentences apart by their length), so no key is needed.

It ends with exit code 0 only if both calls were resumed as promised: in time, by one agent, which
did not greet again and finished the sentence, with every turn in the records, once and in order.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from livekit_demo import script
from livekit_demo.caller import CALLER
from livekit_demo.house import House, house
from livekit_demo.recording import SLOT_S, Track
from livekit_demo.story import PATIENCE_S, Outcome, Part, play, told
from recovery.command import arguments, run_demo
from recovery.strips import Strip, Strips
from recovery.timeline import Screen

from recall_livekit import Recall

ABOUT = "Hear a call survive its worker."
PARTS = (
    Part(
        "alone",
        "1. LiveKit alone",
        "Two workers, one of them idle. The agent is LiveKit's own.",
    ),
    Part(
        "watched",
        "2. With recall_livekit",
        "The same agent as a RecallAgent; in each worker runs a watcher.",
        limit=2.0,
    ),
    Part(
        script.WITH_STANDBY,
        "3. With a standby",
        "The same again; the watcher keeps a second agent ready on the other worker.",
        limit=1.0,
        standby=True,
    ),
)
INTRODUCTION = (
    "Three calls on a real livekit-server. In each the worker is killed while it speaks.",
    "A time with a plus counts from the kill. What is measured is what the caller hears.",
)
FOOTNOTE = "Model and recogniser are scripted and answer at once: real ones add their own time."
BEFORE_S, AFTER_S = 3.5, 8.5
RECORDS_S = 3.0


async def show(screen: Screen, home: House) -> list[Outcome]:
    """Play the three calls; workers for the next one are started while nothing is measured."""

    async def prepare(outcome: Outcome) -> None:
        if outcome.part is PARTS[0]:
            await home.staff("recall")
        elif outcome.part is PARTS[1]:
            await home.start(outcome.killed, "recall")

    outcomes = []
    for part in PARTS:
        screen.title(part.title, part.about)
        screen.columns(home.pids)
        outcomes.append(await play(screen, home, part, prepare))
        await home.dismiss_former()
    return outcomes


async def check_records(home: House, outcomes: list[Outcome]) -> None:
    """Every turn that was said to its end is there, once and in order."""
    async with Recall.open(home.records) as recall:
        for outcome in outcomes[1:]:
            wanted = [script.GREETING, script.ORDER, script.YES, script.BOOKED]
            deadline = time.monotonic() + RECORDS_S
            while (found := await turns(recall, outcome.room)) != wanted:
                if time.monotonic() > deadline:
                    outcome.faults.append(f"the records hold {found}, not {wanted}")
                    break
                await asyncio.sleep(0.1)


async def turns(recall: Recall, room: str) -> list[str]:
    """The recorded turns, without the sentences that a kill cut in two."""
    recorded = [" ".join(turn.content.split()) for turn in await recall.turns(room)]
    return [text for text in recorded if not text.startswith(script.RESUMED)]


def conclude(screen: Screen, outcomes: list[Outcome]) -> None:
    """Show the three calls below each other, aligned at the kill."""
    screen.title("What the caller heard", "The three calls, aligned at the kill.")
    strips = [strip for outcome in outcomes for strip in aligned(outcome)]
    screen.strips(Strips(strips, 0.0, BEFORE_S + AFTER_S, BEFORE_S), final=True)
    head = ("the worker is killed", "silence at the caller's ear", "and then")
    screen.table([head, *(row(outcome) for outcome in outcomes)])
    screen.say(FOOTNOTE)


def aligned(outcome: Outcome) -> tuple[Strip, Strip]:
    """The call from `BEFORE_S` before the kill on: the agents in one strip, and the caller."""
    recording, silence = outcome.recording, outcome.silence
    until = BEFORE_S + (PATIENCE_S if silence is None else max(0.0, silence))
    agents = loudest(recording.voices(), outcome.killed_at - BEFORE_S)
    caller = loudest([recording.track(CALLER, ours=True)], outcome.killed_at - BEFORE_S)
    title = outcome.part.title.partition(". ")[2]
    return (
        Strip(title, "agent", agents, BEFORE_S, until, brief(silence)),
        Strip("     the caller", "caller", caller),
    )


def loudest(tracks: Iterable[Track], start: float) -> list[float]:
    """How loud the loudest of these voices is, from `start` on."""
    first = round(start / SLOT_S)
    levels = [track.levels()[first:].tolist() for track in tracks]
    return [max(slot) for slot in zip_longest(*levels, fillvalue=0.0)]


def brief(silence: float | None) -> str:
    """A silence in a few characters."""
    return "for good" if silence is None else f"{1000 * max(0.0, silence):.0f} ms"


def row(outcome: Outcome) -> tuple[str, str, str]:
    """A row of the comparison."""
    name = outcome.part.title.partition(". ")[2]
    if outcome.successor is None:
        return name, f"{PATIENCE_S:.0f} s, then the caller gave up", "nobody came"
    return name, told(outcome.silence), f'"{outcome.after[:60]} ..."'


def write(screen: Screen, outcomes: list[Outcome], directory: Path) -> None:
    """Write each call as a WAV, and say where."""
    for outcome in outcomes:
        path = directory / f"{outcome.part.name}.wav"
        outcome.recording.write(path)
        screen.say(f"listen: {path}")


async def demo(screen: Screen, directory: Path) -> int:
    """Show it, and what is to be learned from it."""
    screen.title("A worker dies in the middle of a sentence", *INTRODUCTION)
    async with house(directory) as home:
        await home.staff("alone")
        outcomes = await show(screen, home)
        await check_records(home, outcomes)
    conclude(screen, outcomes)
    keep = arguments(ABOUT).keep
    write(screen, outcomes, keep or Path(tempfile.mkdtemp(prefix="recall-demo-livekit-")))
    faults = [f"{one.part.title}: {fault}" for one in outcomes for fault in one.faults]
    for fault in faults:
        screen.say(fault, good=False)
    if not faults:
        screen.say("both calls were resumed as promised, and every turn is recorded", good=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run_demo(demo, ABOUT, real_model=False))
