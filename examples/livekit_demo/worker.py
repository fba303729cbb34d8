"""One worker of the demo: `python -m livekit_demo.worker start`.

Read `../livekit_worker.py` first: that is the worker to copy. This one differs in that its voice,
its ears and its model need no key, and that it takes one call at a time, so that a standby is
always on the other worker.

Its environment: MODE (alone: LiveKit without us; recall), NAME, SIGN (a file, to which it writes
its process when it can take a call), LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET, and, in
recall mode, RECALL_URL.
"""

from __future__ import annotations

import os
from pathlib import Path

from livekit.agents import Agent, AgentServer, AgentSession, JobContext, JobProcess, JobRequest, cli

from recall_livekit import Recall, RecallAgent, RecallAgentServer, Watcher
from recall_livekit.livekit.worker.agent_server import AgentServerOptions
from recall_livekit.testing.voices import ScriptedLLM

from . import script
from .ears import LengthSTT
from .voice import EspeakTTS

INSTRUCTIONS = "You take bookings for a bistro, on the phone."
NAME = os.environ.get("NAME", "worker 1")
ALONE = os.environ.get("MODE") == "alone"


class Plain(Agent):
    """LiveKit alone."""

    async def on_enter(self) -> None:
        self.session.generate_reply(instructions="Greet the caller.")


class Support(RecallAgent):
    """The same agent with us. It needs no more than this."""

    async def on_fresh(self) -> None:
        self.session.generate_reply(instructions="Greet the caller.")


def new_session() -> AgentSession[None]:
    return AgentSession(
        stt=LengthSTT(script.CALLER_VOICE, script.CALLER_SENTENCES),
        llm=ScriptedLLM(script.reply),
        tts=EspeakTTS(script.AGENT_VOICE),
        vad=None,
        turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.05}},
        aec_warmup_duration=0,
        use_tts_aligned_transcript=True,
    )


async def alone(ctx: JobContext) -> None:
    await new_session().start(Plain(instructions=INSTRUCTIONS), room=ctx.room)


async def recall(ctx: JobContext) -> None:
    agent, session = Support(instructions=INSTRUCTIONS, resume=ctx.room.name), new_session()
    if await agent.stand_by(session):
        await session.start(agent, room=ctx.room)


async def answer(request: JobRequest) -> None:
    """One call at a time; LiveKit asks another worker then. The caller sees which worker it is."""
    if server.active_jobs:
        await request.reject(terminate=False)
    else:
        await request.accept(name=NAME)


def warm(process: JobProcess) -> None:
    """Load the voice with the process, not while a caller waits."""
    new_session()


def registered(*_: object) -> None:
    Path(os.environ["SIGN"]).write_text(str(os.getpid()))


def new_watcher() -> Watcher:
    return Watcher(
        Recall.open(),
        standby="joined",
        standby_for=lambda call_id: call_id.startswith(script.WITH_STANDBY),
    )


def new_server() -> AgentServer:
    options: AgentServerOptions = {
        "host": "127.0.0.1",
        "port": 0,
        "load_fnc": lambda *_: 0.05,
        "num_idle_processes": 1,
        "setup_fnc": warm,
        "http_proxy": None,
    }
    if ALONE:
        made, entrypoint = AgentServer(**options), alone
    else:
        made, entrypoint = RecallAgentServer(watcher=new_watcher, **options), recall
    made.rtc_session(entrypoint, agent_name=script.AGENT, on_request=answer)
    made.on("worker_registered", registered)
    return made


server = new_server()

if __name__ == "__main__":
    cli.run_app(server)
