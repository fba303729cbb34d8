"""A worker to copy: an agent whose calls survive it.

    pip install ".[openai]"
    export LIVEKIT_URL=ws://... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=... OPENAI_API_KEY=...
    python livekit_worker.py start

Start it twice (or on two machines: then with `RECALL_URL=https://...`, the address of a Recall
server, for both). Dispatch "bistro" to a room, talk to it, and kill -9 the process that answers.
"""

from dataclasses import dataclass
from typing import Literal

from livekit.agents import AgentSession, JobContext, RunContext, cli, function_tool
from livekit.plugins import openai

from recall_livekit import Briefing, RecallAgent, RecallAgentServer

INSTRUCTIONS = (
    "You take bookings for a bistro, on the phone. Ask for people, day, time and name, one short "
    "sentence at a time, and note each with `note` as soon as you are told. Repeat it all and ask "
    "for a yes. Then call `book`, and say goodbye."
)

# An AgentServer of LiveKit's, and two things more. In its main process runs a watcher: when the
# agent of a call dies, it has another worker go on. And a worker that is told to stop (SIGTERM, a
# deploy) hands its calls over between two sentences, instead of waiting until they end.
server = RecallAgentServer(watcher=True)

Field = Literal["people", "day", "time", "name"]


@dataclass
class Order:
    """What this call is about; any dataclass, pydantic model or dict of yours."""

    people: str = ""
    day: str = ""
    time: str = ""
    name: str = ""


class Bistro(RecallAgent):
    """One agent for one call. `RecallAgent` is LiveKit's `Agent`, and what follows is all."""

    async def on_fresh(self) -> None:
        """A new call: greet. (In a plain `Agent` this would be `on_enter`.)"""
        self.session.userdata = Order()
        await self.session.generate_reply(instructions="Greet the caller.")

    async def on_resume(self, briefing: Briefing | None) -> None:
        """A call that another worker began. The model knows already what was said (every turn, and
        the word at which the other was cut off), and the order is in `session.userdata` again."""
        if briefing is None or briefing.userdata is None:  # the records are out of reach, or empty
            self.session.userdata = Order()
        await self.session.generate_reply(
            instructions="The line dropped for a second. Say so, and finish your last sentence."
        )

    @function_tool
    async def note(self, context: RunContext[Order], field: Field, value: str) -> str:
        """Note what the caller told."""
        setattr(context.userdata, field, value)  # recorded when the tool is done: no more to do
        return "Noted."

    @function_tool
    async def book(self, context: RunContext[Order]) -> str:
        """Book the table."""
        return f"Booked: {context.userdata}"


@server.rtc_session(agent_name="bistro")
async def entrypoint(ctx: JobContext) -> None:
    """Serve one call. The room's name is the call: whoever comes next finds it by that."""
    agent = Bistro(instructions=INSTRUCTIONS, resume=ctx.room.name, userdata_type=Order)
    # Speech and model as in any LiveKit agent; take the plugins that you like.
    session = AgentSession[Order](stt=openai.STT(), llm=openai.LLM(), tts=openai.TTS())
    # Only an agent that was dispatched as a standby waits here, until the call is its own.
    if await agent.stand_by(session):
        await session.start(agent, room=ctx.room)


if __name__ == "__main__":
    cli.run_app(server)
