"""One worker process: `python -m recovery.worker {recall|plain} URL CALL_ID`.

An empty URL means `RECALL_URL` (and `RECALL_API_KEY`), as wherever an application gives none.

It warms up, waits for its "go" as an idle process of a pool does, and serves one call. `Support`
is all that an application writes; the rest stands in for a room, a caller and a network.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from livekit.agents import (
    Agent,
    AgentSession,
    ConversationItemAddedEvent,
    FunctionToolsExecutedEvent,
    UserInputTranscribedEvent,
    function_tool,
    llm,
)

from recall_livekit import Action, Briefing, Call, CallState, Recall, RecallAgent
from recall_livekit.testing.voices import ScriptedSTT, ToneTTS

from .audio import connect_audio
from .line import Line
from .model import choose_model

WORD_MS = 220
FLUSH_S = 60.0
"""Longer than a store may be away here: what was not acknowledged by then never is."""
LAG_S = 0.05

INSTRUCTIONS = (
    "You take bookings for a bistro, on the phone: one short sentence at a time. Ask for what you "
    "were not told yet of: how many people, day, time, name. Then repeat the whole booking in one "
    "sentence and ask for a yes. Only then call `book`, and say goodbye."
)
NOTES = " Whenever you are told something, first call update_working_state."


@function_tool
async def book(people: str, day: str, time: str, name: str) -> str:
    """Book the table."""
    return "Booked."


class Support(RecallAgent):
    """The agent with recall. It needs no more than this."""

    async def on_fresh(self) -> None:
        await self.session.generate_reply(instructions="Greet the caller.")


class Plain(Agent):
    """The same agent without."""

    async def on_enter(self) -> None:
        await self.session.generate_reply(instructions="Greet the caller.")


class Acknowledgements:
    """Tells which records are durable: those that were made before a flush that succeeded."""

    def __init__(self, call: Call, line: Line) -> None:
        self._call = call
        self._line = line
        self._made: list[dict[str, Any]] = []
        self._telling: asyncio.Task[None] | None = None

    def made(self, **record: Any) -> None:
        self._made.append(record)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def told(self) -> None:
        """Return when all that can be told was."""
        if self._telling is not None:
            await self._telling

    async def _tell(self) -> None:
        while self._made and await self._call.flush(FLUSH_S):
            made, self._made = self._made, []
            self._line.tell("acknowledged", records=made)


class Reporter:
    """Tells the demo what happens in the session."""

    def __init__(self, session: AgentSession[None], agent: Agent, line: Line) -> None:
        self._agent = agent
        self._line = line
        self._acknowledgements = (
            Acknowledgements(agent.call, line) if isinstance(agent, RecallAgent) else None
        )
        session.on("user_input_transcribed", self._heard)
        session.on("conversation_item_added", self._added)
        session.on("function_tools_executed", self._executed)
        connect_audio(session, sound=self._sound, word=self._word)

    async def told(self) -> None:
        """Return when it was told what is durable."""
        if self._acknowledgements:
            await self._acknowledgements.told()

    def _heard(self, event: UserInputTranscribedEvent) -> None:
        self._line.tell("heard", text=event.transcript)

    def _sound(self) -> None:
        known = [m.text_content for m in self._agent.chat_ctx.messages() if m.role == "user"]
        lag = lag_of(self._agent.call) if isinstance(self._agent, RecallAgent) else {}
        self._line.tell("sound", known=known, **lag)

    def _word(self, text: str) -> None:
        self._line.tell("word", text=text)

    def _added(self, event: ConversationItemAddedEvent) -> None:
        item = event.item
        if not isinstance(item, llm.ChatMessage) or item.role not in ("user", "assistant"):
            return
        turn = {"id": item.id, "role": item.role, "text": item.text_content or ""}
        self._line.tell("turn", **turn)
        if self._acknowledgements:
            self._acknowledgements.made(kind="turn", **turn)

    def _executed(self, event: FunctionToolsExecutedEvent) -> None:
        for call in event.function_calls:
            arguments = json.loads(call.arguments)
            self._line.tell("tool", id=call.call_id, name=call.name, arguments=arguments)
            if self._acknowledgements and call.name == "update_working_state":
                self._acknowledgements.made(kind="note", id=call.call_id, changes=arguments)


async def report_call(call: Call, line: Line) -> None:
    """Tell when the records were read, and when the lease was taken."""
    await call.ready()
    line.tell("read", **told_of(call.briefing))
    await call.holding()
    line.tell("lease", epoch=call.epoch, **told_of(call.briefing))


def told_of(briefing: Briefing) -> dict[str, Any]:
    """Return what the demo shows of a briefing."""
    cut = [partial.text for partial in briefing.partials if partial.role == "assistant"]
    return {
        "fresh": briefing.fresh,
        "turns": len(briefing.turns),
        "cut": " ".join(cut).strip(),
        "open": [told_action(action) for action in briefing.actions],
    }


def told_action(action: Action) -> str:
    """Return a tool call in a few words."""
    return f"{action.tool}({', '.join(map(str, json.loads(action.arguments).values()))})"


async def report_lag(call: Call, line: Line) -> None:
    """Tell how many records are not durable yet, whenever that changed."""
    told: dict[str, int] = {}
    while True:
        now = {**lag_of(call), "epoch": call.epoch}
        if now != told:
            line.tell("lag", **now)
        told = now
        await asyncio.sleep(LAG_S)


def lag_of(call: Call) -> dict[str, int]:
    """Return how many records wait for the store, and how many of these are on this disk."""
    return {"waiting": call.lag, "spooled": call.spooled}


def new_session(model: llm.LLM[Any], ears: ScriptedSTT, speed: float) -> AgentSession[None]:
    return AgentSession(
        stt=ears,
        llm=model,
        tts=ToneTTS(word_ms=round(WORD_MS / speed)),
        vad=None,
        turn_handling={"turn_detection": "stt", "endpointing": {"min_delay": 0.05}},
        aec_warmup_duration=0,
        use_tts_aligned_transcript=True,
        session_close_transcript_timeout=0.1,
    )


async def serve(agent: Agent, model: llm.LLM[Any], line: Line, speed: float) -> Reporter:
    """Serve the call until the demo says that it is over."""
    ears = ScriptedSTT(word_delay=WORD_MS / speed / 2000)
    session = new_session(model, ears, speed)
    reporter = Reporter(session, agent, line)
    await session.start(agent)
    while (order := await line.orders.get()).kind == "say":
        ears.say(order["text"])
    session.shutdown()
    return reporter


async def serve_recorded(agent: RecallAgent, model: llm.LLM[Any], line: Line, speed: float) -> None:
    """Serve it with recall; returns when everything of it was written and given back."""
    closed = asyncio.Event()
    agent.call.subscribe(lambda state: closed.set() if state is CallState.CLOSED else None)
    agent.call.subscribe(lambda state: line.tell("state", state=state.value))
    watching = [asyncio.create_task(watch(agent.call, line)) for watch in (report_call, report_lag)]
    reporter = await serve(agent, model, line, speed)
    await closed.wait()
    await reporter.told()
    for task in watching:
        task.cancel()


async def main(mode: str, url: str, call_id: str) -> None:
    line, model = Line(), choose_model()
    async with Recall.open(url) as recall:
        line.tell("warm", pid=os.getpid())
        go = await line.orders.get()
        if mode == "recall":
            agent = Support(
                instructions=INSTRUCTIONS + NOTES,
                resume=call_id,
                recall=recall,
                tools=[book],
                model_tools=("update_working_state",),
            )
            await serve_recorded(agent, model, line, go["speed"])
        else:
            await serve(Plain(instructions=INSTRUCTIONS, tools=[book]), model, line, go["speed"])
    line.tell("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
