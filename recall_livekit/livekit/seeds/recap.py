"""A seed for a realtime model: what it takes as items of its history, and the rest as text."""

from __future__ import annotations

from collections.abc import Sequence

from livekit.agents import llm

__all__ = ["recap"]

_SAID = "## What was said and done, oldest first"
_SPEAKERS = {"user": "caller", "assistant": "you"}


def recap(
    items: Sequence[llm.ChatItem], capabilities: llm.RealtimeCapabilities
) -> tuple[str, list[llm.ChatItem]]:
    """Return what a model of these capabilities is told in its instructions, and the items.

    Notes of the briefing are always text. So are tool calls for a model that takes none from
    elsewhere (`manual_function_calls`), and all for one whose history cannot be changed.
    """
    notes = [text for item in items if (text := _note(item))]
    rest = [item for item in items if not _note(item)]
    outputs = {item.call_id: item for item in rest if item.type == "function_call_output"}
    takes, lines = list[llm.ChatItem](), list[str]()
    for item in rest:
        if _is_taken(item, capabilities):
            takes.append(item)
        elif line := _line(item, outputs):
            lines.append(line)
    return "\n".join([*notes, *(["", _SAID, *lines] if lines else [])]), takes


def _note(item: llm.ChatItem) -> str:
    if not isinstance(item, llm.ChatMessage) or item.role in _SPEAKERS:
        return ""
    return item.text_content or ""


def _is_taken(item: llm.ChatItem, capabilities: llm.RealtimeCapabilities) -> bool:
    if not capabilities.mutable_chat_context:
        return False
    if isinstance(item, llm.ChatMessage):
        return bool(item.text_content)
    return capabilities.manual_function_calls


def _line(item: llm.ChatItem, outputs: dict[str, llm.FunctionCallOutput]) -> str:
    if isinstance(item, llm.ChatMessage):
        cut = " (cut off)" if item.interrupted else ""
        speaker = _SPEAKERS.get(item.role, item.role)
        return f"[{speaker}{cut}] {item.text_content}" if item.text_content else ""
    if isinstance(item, llm.FunctionCall):
        done = outputs.get(item.call_id)
        return f"[tool {item.name}] {item.arguments} -> {done.output if done else 'unknown'}"
    return ""
