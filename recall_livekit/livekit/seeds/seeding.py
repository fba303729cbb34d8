"""From a briefing to chat items: one developer message, then the newest turns as they were, with
the tool calls at their place between them.

No model API is given a call without its output, or an output without its call (agents#5092,
agents#995): they are made in pairs, under ids of ours.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence

from livekit.agents import llm

from ...engine.briefing import in_time
from ...models import Action, Briefing, Turn
from ...open_calls import same_arguments

__all__ = ["merge_seed", "seed_items", "settle_history"]

ARGUMENT_CHARS = 500
"""How much of a call's arguments is seeded."""
ID_CHARS = 32
"""The longest id of an item that OpenAI's realtime models take."""
OPEN_CALLS = 20
"""So many of the newest open calls are seeded as such; the notes have more."""
_TICK = 1e-6
"""Between two items (seconds): LiveKit sorts by time, and the order of the chain is the true one"""
_OPEN = {
    "pure": "No result: the worker died while this ran. It changes nothing: call it again if you "
    "need it.",
    "idempotent": "Unknown: the worker died while this ran. It is safe to call it again with the "
    "same arguments: it happens once.",
    "external": "Unknown: the worker died while this ran. It may have happened: check first, and "
    "do not call it again before you know.",
}
_OUTPUT = "ro_"


def seed_items(briefing: Briefing) -> list[llm.ChatItem]:
    """Return the items that bring a model to where the call stands; none for a fresh call.

    Item ids stay those of the recorded messages, at most 32 characters, so that seeding again
    after more turns doubles nothing. An open tool call gets an output that says so: without one
    model APIs reject or drop it, and the model would call it again.
    """
    if briefing.fresh:
        return []
    calls = [*briefing.finished, *briefing.actions[-OPEN_CALLS:]]
    line = in_time([turn for turn in briefing.turns if turn.committed], calls)
    began = line[0].at if line else briefing.last_said_at or 0.0
    head = llm.ChatMessage(
        id="recall_briefing", role="developer", content=[briefing.notes], created_at=began - 0.001
    )
    items: list[llm.ChatItem] = [head]
    for one in line:
        began = max(began + 2 * _TICK, one.at)
        items += [_message(one, began)] if isinstance(one, Turn) else _pair(one, began)
    return list({item.id: item for item in items}.values())  # one id twice ends LiveKit's request


def merge_seed(current: llm.ChatContext, seed: Sequence[llm.ChatItem]) -> llm.ChatContext:
    """Return a context of the seed and then of what is only in `current`, its prompt first.

    Of a tool call that is in both, `current` has the true one: it was made here.
    """
    seeded = {item.id for item in seed}
    rest = [item for item in current.items if item.id not in seeded and not _is_replaced(item)]
    live = {item.call_id: item for item in rest if isinstance(item, llm.FunctionCall)}
    here = {_call_id(item) for item in seed if _was_made_here(item, live)}
    told = [item for item in seed if _call_id(item) is None or _call_id(item) not in here]
    prompt = [item for item in rest if _is_prompt(item)]
    return llm.ChatContext([*prompt, *told, *(item for item in rest if not _is_prompt(item))])


def settle_history(history: llm.ChatContext, seed: Sequence[llm.ChatItem]) -> None:
    """Put the outputs of a newer seed in the places of those that told of an open call."""
    newer: dict[str | None, llm.ChatItem] = {
        item.call_id: item for item in seed if isinstance(item, llm.FunctionCallOutput)
    }
    for place, item in enumerate(history.items):
        if _is_replaced(item):
            history.items[place] = newer.get(_call_id(item), item)


def _is_prompt(item: llm.ChatItem) -> bool:
    """Whether this is the agent's own instructions, which stay in front."""
    return isinstance(item, llm.ChatMessage) and item.id == "lk.agent_task.instructions"


def _message(turn: Turn, created_at: float) -> llm.ChatItem:
    role = turn.role if turn.role in ("user", "assistant") else "developer"
    return llm.ChatMessage(
        id=_message_id(turn),
        role=role,
        content=[turn.content],
        interrupted=turn.interrupted,
        created_at=created_at,
    )


def _message_id(turn: Turn) -> str:
    """Return the id that the message had, if it fits: a realtime model takes 32 characters, and
    LiveKit takes what is in front of a slash for the id of a group, of one message alone."""
    was = turn.message_id or f"recall_{turn.seq}"
    if len(was) <= ID_CHARS and "/" not in was:
        return was
    return f"rm_{hashlib.blake2b(was.encode(), digest_size=11).hexdigest()}"


# --- tool calls -------------------------------------------------------------------------------


def _pair(action: Action, created_at: float) -> list[llm.ChatItem]:
    """Return the call and its output. The ids are ours: those of models may be too long, and some
    use them again. An output that says more has another id, as realtime models need it."""
    name = hashlib.blake2b(action.key.encode(), digest_size=11).hexdigest()
    tool = re.sub(r"[^A-Za-z0-9_-]", "_", action.tool)[:64] or "tool"
    return [
        llm.FunctionCall(
            id=f"rc_{name}",
            call_id=f"rk_{name}",
            name=tool,
            arguments=_object(action.arguments),
            created_at=created_at,
            extra={"recall": {"call_id": action.call_id, "arguments": action.arguments}},
        ),
        llm.FunctionCallOutput(
            id=f"{_OUTPUT}{name}{'s' if _is_settled(action) else 'o'}",
            call_id=f"rk_{name}",
            name=tool,
            output=_output(action),
            is_error=action.status != "done",
            created_at=created_at + _TICK,
        ),
    ]


def _is_settled(action: Action) -> bool:
    return action.status in ("done", "failed")


def _output(action: Action) -> str:
    if not _is_settled(action):
        return _OPEN[action.action_class]
    result = action.result or ""
    if action.result_ref and action.result_ref not in result:
        return f"{result}... [cut here; all of it: ref {action.result_ref}]"
    return result


def _object(arguments: str) -> str:
    """Return arguments that fit a prompt, as the JSON object that model APIs insist on."""
    try:
        whole = len(arguments) <= ARGUMENT_CHARS and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        whole = False
    return arguments if whole else json.dumps({"cut": arguments[:ARGUMENT_CHARS]})


def _call_id(item: llm.ChatItem) -> str | None:
    if isinstance(item, llm.FunctionCall | llm.FunctionCallOutput):
        return item.call_id
    return None


def _is_replaced(item: llm.ChatItem) -> bool:
    """Whether this is an output of ours that told of an open call; a newer seed has its own."""
    ours = isinstance(item, llm.FunctionCallOutput) and item.id.startswith(_OUTPUT)
    return ours and item.id.endswith("o")


def _was_made_here(item: llm.ChatItem, live: dict[str, llm.FunctionCall]) -> bool:
    if not isinstance(item, llm.FunctionCall):
        return False
    recorded = item.extra.get("recall", {})
    same = live.get(recorded.get("call_id") or "")
    return (
        same is not None
        and same.name == item.name
        and same_arguments(same.arguments, recorded.get("arguments", ""))
    )
