"""A directory as days of work leave it: filled by real handles, one of them killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import anyio

from recall_livekit import Recall
from recall_livekit.call import Call
from recall_livekit.seams import SystemClock
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.faults import FaultyStore

TABLE = "table-for-two"
OLD = "last-month"
LIVE = "on the phone"
LEFT = "hung-up"
FORGOTTEN = "forgotten"
SECRET = "my number is 4711"
ODD = (
    "red\x1b[31m\x07 alert",
    "-rf",
    " spaced ",
    "日本語の部屋",
    "it's $HOME\\n",
    "\u202edetrevni",
    "[bold]markup[/bold]",
    "line\nbreak",
)
DAY = 86400.0

KILLED = """
import asyncio, os, signal, sys
from recall_livekit import Recall, Settings
from recall_livekit.stores.sqlite import SqliteStore

async def main():
    recall = Recall(SqliteStore(sys.argv[1]), settings=Settings(partial_interval=0.01))
    call = recall.resume(sys.argv[2], room_sid="RM_2", caller="bob", agent_name="support")
    call.start()
    assert await call.holding(5)
    call.record_turn("user", "Is there a window seat?")
    assert await call.flush(5)
    call.partial("assistant", "There is, just beside the")
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


class Earlier(SystemClock):
    """A clock of some days ago."""

    def __init__(self, days: float) -> None:
        self.seconds = days * DAY

    def now(self) -> float:
        return time.time() - self.seconds


async def held(call: Call) -> Call:
    call.start()
    assert await call.holding(5)
    return call


def recall_at(directory: Path, days: float = 0.0) -> Recall:
    return Recall(SqliteStore(directory), clock=Earlier(days))


async def fill_table(directory: Path) -> None:
    """Two runs; in the second a takeover, late words, and a holder that is killed."""
    async with recall_at(directory, 1) as recall:
        call = await held(recall.resume(TABLE, room_sid="RM_1", caller="anna", agent_name="night"))
        call.record_turn("user", "Are you open on Sunday?", name="anna")
        call.record_turn("assistant", "We are, from noon on.", agent="night")
        assert await call.flush(5)
        await call.aclose("ended")
    frozen = FaultyStore(SqliteStore(directory), Random(1), timeout=0.2)
    first = Recall(frozen)
    call = await held(first.resume(TABLE, room_sid="RM_2", caller="bob", agent_name="support"))
    call.record_turn("user", "A table for two, tomorrow at half past seven.\nUnder Bob.")
    call.record_turn("assistant", "For two, at half past se", agent="booking", interrupted=True)
    call.update_working_state(goal="Book a table", plan=["ask for the time", "book"])
    call.update_working_state(progress="time is known", step=1)
    call.record_userdata({"guests": 2})
    call.record_userdata({"guests": 2, "at": "19:30"})
    key = call.record_action("find_table", action_class="pure", arguments='{"guests": 2}')
    call.record_action(
        "find_table", key=key, action_class="pure", status="done", result="table 7 is free"
    )
    call.record_action("charge_deposit", arguments='{"amount": 10}')
    assert await call.flush(5)
    frozen.freeze()
    call.record_turn("user", "Hello? Can you hear me?")
    async with recall_at(directory) as recall:
        second = await held(
            recall.resume(
                TABLE, room_sid="RM_2", caller="bob", if_held="steal", agent_name="backup"
            )
        )
        second.record_turn("assistant", "Yes, sorry: the line dropped.", agent="booking")
        assert await second.flush(5)
        await second.aclose()
        frozen.thaw()
        assert await call.flush(10)
        await call.aclose()
    await first.aclose()
    killed = await anyio.run_process(
        [sys.executable, "-c", KILLED, str(directory), TABLE], check=False
    )
    assert killed.returncode == -9, killed.stderr.decode()


async def fill_others(directory: Path) -> None:
    async with recall_at(directory, 40) as recall, recall.resume(OLD, room_sid="RM_3") as call:
        call.record_turn("user", "It was in October.")
    async with recall_at(directory) as recall:
        call = await held(recall.resume(LEFT))
        call.record_turn("user", "bye")
        await call.aclose("left")
        async with recall.resume(FORGOTTEN, room_sid="RM_4") as call:
            call.record_turn("user", SECRET)
            call.update_working_state(goal=SECRET)
        await recall.erase(FORGOTTEN)
        for odd in ODD:
            async with recall.resume(odd, agent_name="odd\x1b[2Jagent") as call:
                call.record_turn("user", f"I am {odd}", name="\x1b]0;owned\x07")


def fill(directory: Path) -> None:
    """Fill the directory. Takes about two seconds."""

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fill_table(directory))
            tasks.create_task(fill_others(directory))

    asyncio.run(both())


LIVING = """
import asyncio, sys
from recall_livekit import Recall

async def main():
    call = Recall.open(sys.argv[1]).resume(sys.argv[2], agent_name="support")
    async with call:
        print("holding", flush=True)
        for line in iter(lambda: asyncio.to_thread(sys.stdin.readline), None):
            said = (await line).strip()
            if not said:
                break
            call.record_turn("user", said)
            await call.flush(5)
            print("said", flush=True)

asyncio.run(main())
"""


class Living:
    """Another process that has a live call and says what it is told to."""

    def __init__(self, directory: Path, call: str = LIVE) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LIVING, f"sqlite:///{directory}", call],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._expect("holding")

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        self._expect("said")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == word

    def __enter__(self) -> Living:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("\n", timeout=10)
