"""An agent as a process that speaks without end: `python -m tests.livekit.speaking DIRECTORY`.

It says on standard output what happens to it, a line each: `holds PID`, `frame TIME` for each frame
of sound that leaves it (20 ms; seconds of the machine's monotonic clock), `silent TIME` when it
notices that it may not be heard, `lost REASON TIME` and `ended TIME`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from livekit import rtc

from recall_livekit import CallState, Recall, Settings
from recall_livekit.stores.sqlite import SqliteStore

from .line import Line, Speaker, until
from .test_agent import Support

STORY = " ".join(f"word{n}" for n in range(2000))
TTL = 30.0


def tell(*words: object) -> None:
    print(*words, flush=True)


class Telling(Support):
    async def on_lease_lost(self, reason: str) -> None:
        tell("lost", reason, time.monotonic())
        await asyncio.sleep(0.5)  # an application takes its time


class TellingSpeaker(Speaker):
    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        tell("frame", time.monotonic())


async def main(directory: Path) -> None:
    recall = Recall(SqliteStore(directory), settings=Settings(lease_ttl=TTL))
    agent = Telling(recall)
    line = Line(agent, lambda _: STORY, speaker=TellingSpeaker())
    ended = asyncio.Event()
    line.session.on("close", lambda _: ended.set())
    async with line.open():
        await until(lambda: agent.call.state is CallState.HOLDING)
        tell("holds", os.getpid())
        while agent.call.may_speak:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        tell("silent", time.monotonic())
        await asyncio.wait_for(ended.wait(), 10)
        tell("ended", time.monotonic())
    await recall.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
