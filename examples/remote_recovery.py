"""A call that survives its worker and its server: run it and watch.

A caller books a table. The records are on a Recall server on this machine. Worker 1 is killed
(SIGKILL) in the middle of a sentence, and worker 2, which had joined as a standby, goes on. Then
the server is killed while worker 2 talks: the call goes on as if nothing were, and what should be
recorded waits in the worker. The server is started again, on the same port and the same store; all
that waited arrives.

    make demo-remote                     or
    python examples/remote_recovery.py   needs: pip install ".[server,demo,testing]"

    --keep DIR   keep the records (and the logs of all processes) in DIR
    --plain      plain lines, as when the output is no terminal

Workers, server and client are the real ones; room, caller, voice and model are scripted, so no key
of a model is needed. With OPENAI_API_KEY set, the model is OpenAI's (the caller stays scripted).

It ends with exit code 0 only if every turn that was said is found at the server, once and in its
order, and (scripted model) the second worker neither greeted nor asked again.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from urllib.parse import quote

from recovery.cast import Cast, cast
from recovery.check import Verdict, judge_said
from recovery.command import START_S, has_key, run_demo
from recovery.outage import Outage, Reply
from recovery.process import DemoFailed, Server, Worker
from recovery.remote_story import RemoteStory
from recovery.timeline import Screen

from recall_livekit import Recall, Settings
from recall_livekit.server.keys import open_keys
from recall_livekit.testing.leash import free_ports

INTRODUCTION = (
    "A caller books a table; the records are on a Recall server, a process of its own.",
    "Worker 1 will be killed in the middle of a sentence, then the server while worker 2 talks.",
    "A time with a plus counts from the last kill.",
    "A check mark or [recorded] means acknowledged: on the server's disk.",
    "A circle or [waiting] means kept by the worker, until the server is back.",
)
GRACE_NOTE = (
    f"(of it {Settings().disconnect_grace * 1000:.0f} ms: so long a worker whose connection broke "
    "may take to come back)"
)
FOOTNOTE = (
    "Model and voice are scripted and answer at once: a real model adds its own time to every "
    "wait, with the server and without."
)
REAL_MODEL = "The model is a real one; voice and caller are scripted."

SERVER_NEEDS = (
    "httptools",
    "prometheus_client",
    "pythonjsonlogger",
    "starlette",
    "uvicorn",
    "uvloop",
)


@dataclass(frozen=True, slots=True)
class House:
    """Where the server lives, and the keys that it knows."""

    directory: Path
    store_url: str
    port: int
    worker_key: str = field(repr=False)
    reader_key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def worker_environment(self) -> dict[str, str]:
        """All that a worker needs to know."""
        return {"RECALL_URL": self.url, "RECALL_API_KEY": self.worker_key}

    async def start_server(self, log: str) -> Server:
        arguments = (self.store_url, str(self.port))
        return await Server.start(3, self.directory / f"{log}.log", *arguments)

    async def start_worker(self, number: int, call_id: str) -> Worker:
        log = self.directory / f"worker-{number}.log"
        told = self.worker_environment
        return await Worker.start(number, log, "recall", "", call_id, environment=told)


async def build(directory: Path) -> House:
    """Make the keys, as `recall-livekit key create` does, and find a port."""
    if missing := [name for name in SERVER_NEEDS if not find_spec(name)]:
        raise DemoFailed(f'no {", ".join(missing)} here: pip install ".[server]"')
    store_url = f"sqlite:///{quote(str(directory / 'records'))}"
    async with aclosing(open_keys(store_url)) as keys:
        worker = await keys.create("default", "agent", "the demo's workers")
        reader = await keys.create("default", "read", "the demo itself")
    return House(directory, store_url, free_ports(1)[0], worker.key, reader.key)


async def warm(players: Cast, processes: int) -> None:
    """Wait until all have loaded everything; it is the first that each of them tells."""
    async with asyncio.timeout(START_S):
        for _ in range(processes):
            await players.next()


async def show(screen: Screen, house: House) -> tuple[RemoteStory, Verdict]:
    """Show the call, and check what the server has of it."""
    call_id = f"room-{secrets.token_hex(4)}"
    async with cast() as players, Recall.open(house.url, api_key=house.reader_key) as reader:
        server = players.join(await house.start_server("server"))
        first = players.join(await house.start_worker(1, call_id))
        second = players.join(await house.start_worker(2, call_id))
        await warm(players, 3)
        screen.columns((first.pid, second.pid, server.pid))
        again = partial(house.start_server, "server-again")
        story = RemoteStory(
            screen, cast=players, reader=reader, call_id=call_id, start_server=again
        )
        await story.begin(first, second)
        await story.worker_dies(first)
        await story.server_dies(server, second)
        await story.server_returns()
        await story.until_booked(second)
        await story.end(second)
        return story, await judge_said(reader, call_id, story.said, story.acknowledged)


def conclude(screen: Screen, story: RemoteStory, verdict: Verdict) -> None:
    """Say what became of the records, and what the caller noticed."""
    turns = sum(record["kind"] == "turn" for record in story.said)
    said = f"{turns} turns and {len(story.said) - turns} notes were said and acknowledged"
    if verdict.faults:
        screen.say(f"of {len(story.said)} records {verdict.found} were found", good=False)
        for fault in verdict.faults:
            screen.say(fault, good=False)
    else:
        screen.say(f"{said}; the server has each once, in order: nothing lost", good=True)
    screen.say(f"Worker 1 was killed: {story.silence or 0:.0f} ms of silence {GRACE_NOTE}")
    screen.say(told_outage(story.outage))
    rows = [
        (shorten(r.text, 44, placeholder=" ..."), f"{r.waited:.0f} ms", told_server(r))
        for r in story.timeline.replies
    ]
    screen.table([("the reply", "the caller waited", "the server"), *rows])
    screen.say(REAL_MODEL if has_key() else FOOTNOTE)


def told_outage(outage: Outage) -> str:
    """Return the outage in one line."""
    away, drained = outage.back_at - outage.killed_at, outage.drained_at - outage.back_at
    return (
        f"The server was killed: away for {away:.1f} s, {outage.most_waiting} records waited for "
        f"it at most, and all of them had arrived {drained:.1f} s after it was back"
    )


def told_server(reply: Reply) -> str:
    """Return how the server was when this was said."""
    return "answers" if reply.up else f"down, {reply.waiting} records wait for it"


async def demo(screen: Screen, directory: Path) -> int:
    """Show it, and what is to be learned from it."""
    screen.title("A call that survives its worker and its server", *INTRODUCTION)
    story, verdict = await show(screen, await build(directory))
    verdict.faults += story.faults
    verdict.faults += [] if has_key() else story.misbehaved  # a real model is free in its words
    conclude(screen, story, verdict)
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(run_demo(demo, "Watch a call survive its worker, and then its server."))
