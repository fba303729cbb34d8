"""A worker as an application would write it, run as a process: `python worker.py start`.

Its environment: MODE (livekit: a plain Agent; recall: a RecallAgent), AGENT_NAME, IDLE_PROCESSES,
STAGE_DIR, LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET, and RECALL_URL in recall mode.

What it tells the test it writes to files below STAGE_DIR: `registered`, which holds the pid of the
main process; `warm/<pid>` for an idle
process; `jobs/<room>/<identity>`, which holds the pid of the job that serves the room.
"""

import os
import re
from pathlib import Path
from typing import Any

from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    JobProcess,
    cli,
    llm,
)

from recall_livekit.testing.voices import ScriptedLLM, ScriptedSTT, ToneTTS, said

STAGE = Path(os.environ.get("STAGE_DIR", "."))
GREET = "Greet the caller."
CALLER_WORDS = ("my", "number", "is", "seven", "four", "nine")
STORY = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november"


def reply(chat_ctx: llm.ChatContext) -> str:
    """Knows the caller's number only if the chat context holds it."""
    number = re.search(r"number is (\w+ \w+)", " ".join(said(chat_ctx)))
    if number is None:
        return "hello please tell me your number"
    opening = "welcome back" if chat_ctx.messages()[-1].role != "user" else "thanks"
    return f"{opening} {number[1]} {' '.join([STORY] * 3)}"


class Plain(Agent):
    """LiveKit alone."""

    async def on_enter(self) -> None:
        self.session.generate_reply(instructions=GREET)


def recall_agent(room: str) -> Agent:
    # imported here, so that a plain worker runs without it
    from recall_livekit import RecallAgent

    class Support(RecallAgent):
        async def on_fresh(self) -> None:
            await self.session.generate_reply(instructions=GREET)

    return Support(instructions="You are kind.", resume=room)


def new_session() -> AgentSession[Any]:
    return AgentSession(
        stt=ScriptedSTT(CALLER_WORDS),
        llm=ScriptedLLM(reply),
        tts=ToneTTS(),
        vad=None,
        turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.05}},
        aec_warmup_duration=0,
        use_tts_aligned_transcript=True,
    )


def warm(process: JobProcess) -> None:
    write(STAGE / "warm" / str(os.getpid()), "")


async def entrypoint(ctx: JobContext) -> None:
    (STAGE / "warm" / str(os.getpid())).unlink(missing_ok=True)
    write(STAGE / "jobs" / ctx.room.name / ctx.local_participant_identity, str(os.getpid()))
    recalls = os.environ["MODE"] == "recall"
    agent = recall_agent(ctx.room.name) if recalls else Plain(instructions="You are kind.")
    await new_session().start(agent, room=ctx.room)


def write(path: Path, text: str) -> None:
    """Makes a file that is complete as soon as it can be seen."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_text(text)
    draft.replace(path)


def new_server() -> AgentServer:
    server = AgentServer(
        host="127.0.0.1",
        port=0,
        load_fnc=lambda *_: 0.05,
        num_idle_processes=int(os.environ.get("IDLE_PROCESSES", "2")),
        setup_fnc=warm,
        http_proxy=None,
    )
    server.rtc_session(entrypoint, agent_name=os.environ["AGENT_NAME"])
    server.on("worker_registered", lambda *_: write(STAGE / "registered", str(os.getpid())))
    return server


if __name__ == "__main__":
    cli.run_app(new_server())
