"""A worker as an application would write it, run as a process: `python worker.py start`.

Its environment: MODE (livekit: a plain Agent; recall: a RecallAgent), AGENT_NAME, IDLE_PROCESSES,
STAGE_DIR, WORKER_NAME, LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET, and in recall mode
RECALL_URL, DRAIN, WATCHER (any text: it has one), SERVES, STANDBY and FALLBACK (the
watcher's).

What it tells the test it writes to files below STAGE_DIR: `workers/<name>/registered`, which holds
the pid of the main process; `workers/<name>/warm/<pid>` for an idle process; and
`jobs/<room>/<identity>`, which holds the pid of the job that serves the room, and its worker. It
takes no jobs while there is a file `workers/<name>/full`.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livekit.agents import (
    NOT_GIVEN,
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    JobProcess,
    cli,
)

from recall_livekit.testing.voices import ScriptedLLM, ScriptedSTT, ToneTTS
from tests.real.dialogue import CALLER_WORDS, SORRY, reply
from tests.real.recital import recite

if TYPE_CHECKING:
    from recall_livekit import RecallAgent
    from recall_livekit.livekit.worker.watching import WatcherOptions
    from recall_livekit.rooms.orders import StandbyKind

STAGE = Path(os.environ.get("STAGE_DIR", "."))
MODE = os.environ.get("MODE", "livekit")
NAME = os.environ.get("WORKER_NAME", "worker")
MINE = STAGE / "workers" / NAME
GREET = "Greet the caller."
HOST = {"host": "127.0.0.1", "port": 0, "http_proxy": None}


class Plain(Agent):
    """LiveKit alone."""

    async def on_enter(self) -> None:
        self.session.generate_reply(instructions=GREET)


class Fallback(Agent):
    """For a call that kills its agents: it says so, and listens to nobody."""

    async def on_enter(self) -> None:
        self.session.say(SORRY)


def recall_agent(room: str) -> RecallAgent:
    from recall_livekit import RecallAgent  # here, so that a plain worker runs without it

    class Support(RecallAgent):
        async def on_fresh(self) -> None:
            await self.session.generate_reply(instructions=GREET)

    return Support(instructions="You are kind.", resume=room)


def new_session(room: str) -> AgentSession[Any]:
    # LiveKit's default is deaf for the first 3 s: only where a test is about that
    warm_up = NOT_GIVEN if room.startswith("echo") else 0
    return AgentSession(
        aec_warmup_duration=warm_up,
        stt=ScriptedSTT(CALLER_WORDS),
        llm=ScriptedLLM(recite if room.startswith("recital") else reply),
        tts=ToneTTS(),
        vad=None,
        turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.05}},
        use_tts_aligned_transcript=True,
    )


def warm(process: JobProcess) -> None:
    if MODE == "recall":
        import_module("recall_livekit.agent")  # as a worker does that imports it at its top
    write(MINE / "warm" / str(os.getpid()), "")


def serve(ctx: JobContext) -> None:
    """Tells the test that this process serves the room."""
    (MINE / "warm" / str(os.getpid())).unlink(missing_ok=True)
    told = f"{os.getpid()} {NAME}"
    write(STAGE / "jobs" / ctx.room.name / ctx.local_participant_identity, told)


async def plain(ctx: JobContext) -> None:
    serve(ctx)
    await new_session(ctx.room.name).start(Plain(instructions="You are kind."), room=ctx.room)


async def fallback(ctx: JobContext) -> None:
    serve(ctx)
    await new_session(ctx.room.name).start(Fallback(instructions="You are kind."), room=ctx.room)


async def recall(ctx: JobContext) -> None:
    serve(ctx)
    agent, session = recall_agent(ctx.room.name), new_session(ctx.room.name)
    if await agent.stand_by(session):
        await session.start(agent, room=ctx.room)


ENTRYPOINTS = {"livekit": plain, "fallback": fallback, "recall": recall}


def write(path: Path, text: str) -> None:
    """Makes a file that is complete as soon as it can be seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.replace(path)


def watcher_options() -> WatcherOptions:
    kinds: dict[str, StandbyKind] = {"following": "following", "joined": "joined"}
    served: WatcherOptions = {}
    if os.environ["SERVES"]:
        served["agent_name"] = os.environ["AGENT_NAME"]
        served["serve_rooms"] = lambda room: room.name.startswith("served")
    return {
        **served,
        "standby": kinds.get(os.environ["STANDBY"]),
        "standby_for": lambda call: call.startswith("standby"),
        "fallback_agent": os.environ["FALLBACK"] or None,
    }


def load() -> float:
    """Always the same: what a test does to the processor starts and stops nothing."""
    return 1.0 if (MINE / "full").exists() else 0.05


def new_server() -> AgentServer:
    options: dict[str, Any] = {
        "load_fnc": load,
        "num_idle_processes": int(os.environ.get("IDLE_PROCESSES", "2")),
        "setup_fnc": warm,
        **HOST,
    }
    if MODE != "recall":
        return AgentServer(**options)
    from recall_livekit.livekit.worker.agent_server import RecallAgentServer

    watcher = watcher_options() if os.environ.get("WATCHER") else False
    waits = os.environ.get("DRAIN") == "wait"
    return RecallAgentServer(watcher=watcher, drain="wait" if waits else "handover", **options)


def run() -> None:
    server = new_server()
    server.rtc_session(ENTRYPOINTS[MODE], agent_name=os.environ["AGENT_NAME"])
    server.on("worker_registered", lambda *_: write(MINE / "registered", str(os.getpid())))
    cli.run_app(server)


if __name__ == "__main__":
    run()
