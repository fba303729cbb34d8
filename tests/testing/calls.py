"""Calls to load: recorded by real handles in a store in memory, and exported by the command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from livekit.agents import function_tool, llm

from recall_livekit import Recall, RecallAgent
from recall_livekit.call import Call
from recall_livekit.cli.export import export
from recall_livekit.stores.memory import MemoryStore
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.voices import Reply, said, tool_call

ROOM = "a table, and a deposit"
TURNS = (
    ("assistant", "Good evening, what can I do for you?"),
    ("user", "A table for four, tomorrow."),
    ("assistant", "Gladly. So that is four people, tomorrow at half past seven."),
    ("user", "Yes. And here is my card for the deposit."),
)
DONE = "The deposit is paid. Is there anything else?"


class Support(RecallAgent):
    """An agent as an application writes it: it knows nothing of tests."""

    def __init__(self, room: str) -> None:
        super().__init__(instructions="You take bookings.", resume=room)
        self.charged: list[int] = []

    @function_tool
    async def charge(self, amount: int) -> str:
        """Charge the card."""
        self.charged.append(amount)
        return f"charged {amount}"

    @function_tool
    async def find_charge(self) -> str:
        """Look whether the card was charged."""
        return "charged once"


def careful(chat_ctx: llm.ChatContext) -> Reply:
    """A model that does as it is told: it looks before it charges again."""
    last = chat_ctx.items[-1]
    if isinstance(last, llm.FunctionCallOutput):
        return f"I looked: {last.output}."
    if said(chat_ctx, "user")[-1:] == ["Did it work?"]:
        return [tool_call("find_charge")]
    return "Sorry, the line dropped; one moment."


def careless(chat_ctx: llm.ChatContext) -> Reply:
    """A model that charges whatever it is told."""
    if isinstance(chat_ctx.items[-1], llm.FunctionCallOutput):
        return "Paid."
    return [tool_call("charge", '{"amount": 10}')]


def record(call: Call) -> None:
    """A call of five turns; before the fifth the deposit was charged."""
    for role, content in TURNS:
        call.record_turn(role, content, agent="support" if role == "assistant" else None)  # type: ignore[arg-type]
    key = call.record_action("charge", arguments='{"amount": 10}')
    call.record_action("charge", key=key, status="done", result="charged 10")
    call.record_turn("assistant", DONE, agent="support")


@asynccontextmanager
async def recorded(room_sid: str | None = "RM_one") -> AsyncIterator[Recall]:
    """A store in memory with the call, which its worker still has."""
    async with (
        Recall(MemoryStore()) as recall,
        recall.resume(ROOM, room_sid=room_sid, caller="anna") as call,
    ):
        record(call)
        assert await call.flush(10)
        yield recall


async def exported(directory: Path) -> Path:
    """The same call, ended, in a file that the command wrote."""
    store, file = directory / "records", directory / "call.jsonl"
    async with Recall(SqliteStore(store)) as recall:
        call = recall.resume(ROOM, room_sid="RM_one", caller="anna")
        async with call:
            record(call)
            assert await call.flush(10)
            call.outcome = "ended"
    await export(f"sqlite:///{store}", ROOM, file, force=True)
    return file
