"""From a briefing to chat items: one developer message, then the newest turns as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence

from livekit.agents import llm

from ..models import Action, Briefing, Turn

__all__ = ["merge_seed", "seed_items"]

ARGUMENT_CHARS = 500
"""How much of an open call's arguments is seeded."""
_OUTCOME_OPEN = "Unknown: the worker died while this ran. It may have happened; check first."


def seed_items(briefing: Briefing) -> list[llm.ChatItem]:
    """Return the items that bring a model to where the call stands; none for a fresh call.

    Item ids stay those of the recorded messages, at most 32 characters, so that seeding again
    after more turns doubles nothing. An open tool call gets an output that says so: without one
    model APIs reject or drop it, and the model would call it again.
    """
    if briefing.fresh:
        return []
    began = briefing.turns[0].at if briefing.turns else briefing.last_said_at or 0.0
    head = llm.ChatMessage(
        id="recall_briefing", role="developer", content=[briefing.notes], created_at=began - 0.001
    )
    turns: list[llm.ChatItem] = []
    for turn in briefing.turns:
        began = max(began, turn.at)  # LiveKit sorts by time; the order of the chain is the true one
        turns.append(_message(turn, began))
    actions = [item for action in briefing.actions for item in _open_call(action)]
    return [head, *sorted([*turns, *actions], key=lambda item: item.created_at)]


def merge_seed(current: llm.ChatContext, seed: Sequence[llm.ChatItem]) -> llm.ChatContext:
    """Return a context of the seed and then of what is only in `current`, its prompt first."""
    seeded = {item.id for item in seed}
    rest = [item for item in current.items if item.id not in seeded]
    prompt = [item for item in rest if _is_prompt(item)]
    return llm.ChatContext([*prompt, *seed, *(item for item in rest if not _is_prompt(item))])


def _is_prompt(item: llm.ChatItem) -> bool:
    """Whether this is the agent's own instructions, which stay in front."""
    return isinstance(item, llm.ChatMessage) and item.id == "lk.agent_task.instructions"


def _message(turn: Turn, created_at: float) -> llm.ChatItem:
    role = turn.role if turn.role in ("user", "assistant") else "developer"
    return llm.ChatMessage(
        id=(turn.message_id or f"recall_{turn.seq}")[:32],
        role=role,
        content=[turn.content],
        interrupted=turn.interrupted,
        created_at=created_at,
    )


def _short(arguments: str) -> str:
    """Return arguments that fit a prompt, as the JSON object that model APIs insist on."""
    if len(arguments) <= ARGUMENT_CHARS:
        return arguments
    return json.dumps({"cut": arguments[:ARGUMENT_CHARS]})


def _open_call(action: Action) -> list[llm.ChatItem]:
    call_id = (action.call_id or action.key)[:32]
    return [
        llm.FunctionCall(
            id=f"rc_{action.key}"[:32],
            call_id=call_id,
            name=action.tool,
            arguments=_short(action.arguments),
            created_at=action.at,
        ),
        llm.FunctionCallOutput(
            id=f"ro_{action.key}"[:32],
            call_id=call_id,
            name=action.tool,
            output=_OUTCOME_OPEN,
            is_error=True,
            created_at=action.at,
        ),
    ]
