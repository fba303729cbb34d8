"""The conversation of a Realtime session: its items in order, and which ones are refused."""

from __future__ import annotations

from typing import Any

from .rules import CALL_ID_CHARS, ITEM_ID_CHARS, Refused, check_call, limited

__all__ = ["Conversation"]

Json = dict[str, Any]
PARTS = {
    "system": ("input_text",),
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text", "output_audio"),
}
KEYS = {
    "message": {"id", "object", "type", "status", "role", "content"},
    "function_call": {"id", "object", "type", "status", "call_id", "name", "arguments"},
    "function_call_output": {"id", "object", "type", "status", "call_id", "output"},
}
SESSION_KEYS = {
    "type",
    "model",
    "instructions",
    "tools",
    "tool_choice",
    "output_modalities",
    "audio",
    "max_output_tokens",
    "tracing",
    "truncation",
    "reasoning",
    "include",
    "prompt",
}


class Conversation:
    """Items by their order; every change is checked first."""

    def __init__(self) -> None:
        self.items: list[Json] = []

    def create(self, item: Json, previous: str | None) -> str | None:
        """Put an item after `previous` ("root": in front of all, None: behind all), and return
        the id of the one before it."""
        place = self._place(previous)
        self._check(item, place)
        self.items.insert(place, item)
        return self.items[place - 1]["id"] if place else None

    def delete(self, item_id: str) -> None:
        self.items.remove(self.get(item_id, "item_delete_invalid_item_id"))

    def get(self, item_id: str, code: str = "invalid_item_id") -> Json:
        for item in self.items:
            if item["id"] == item_id:
                return item
        raise Refused(f"Item with item_id '{item_id}' does not exist.", code=code)

    def check_whole(self) -> None:
        """Refuse to answer where a call and its output do not pair."""
        if self.open_calls:
            raise Refused(f"No tool output found for function call {self.open_calls[0]}.")
        if orphans := [one for one in self._outputs if one not in self._calls]:
            raise Refused(f"Tool call ID '{orphans[0]}' not found in conversation.")

    @property
    def open_calls(self) -> list[str]:
        """The calls that have no output."""
        return [one for one in self._calls if one not in self._outputs]

    @property
    def _calls(self) -> list[str]:
        return [item["call_id"] for item in self.items if item["type"] == "function_call"]

    @property
    def _outputs(self) -> list[str]:
        return [item["call_id"] for item in self.items if item["type"] == "function_call_output"]

    def _place(self, previous: str | None) -> int:
        if previous is None:
            return len(self.items)
        if previous == "root":
            return 0
        return self.items.index(self.get(previous, "item_create_invalid_previous_item_id")) + 1

    def _check(self, item: Json, place: int) -> None:
        kind = item.get("type")
        if kind not in KEYS:
            raise Refused(f"Invalid value: '{kind}'.", param="item.type")
        if unknown := item.keys() - KEYS[kind]:
            raise Refused(f"Unknown parameter: 'item.{min(unknown)}'.", code="unknown_parameter")
        item_id = limited(item.get("id"), ITEM_ID_CHARS, "item.id")
        if any(one["id"] == item_id for one in self.items):
            raise Refused(
                f"Item with id '{item_id}' already exists.", code="item_create_duplicate_item_id"
            )
        if kind == "message":
            _check_message(item)
        elif kind == "function_call":
            check_call(item, CALL_ID_CHARS["realtime"], "item")
        else:
            self._check_output(item, place)

    def _check_output(self, item: Json, place: int) -> None:
        call_id = limited(item.get("call_id"), CALL_ID_CHARS["realtime"], "item.call_id")
        before = self.items[:place]
        if not any(one["type"] == "function_call" and one["call_id"] == call_id for one in before):
            raise Refused(
                f"Tool call ID '{call_id}' not found in conversation.", code="invalid_tool_call_id"
            )
        if not isinstance(item.get("output"), str):
            raise Refused("Invalid 'item.output': expected a string.", param="item.output")


def _check_message(item: Json) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in PARTS:
        raise Refused(f"Invalid value: '{role}'.", param="item.role")
    if not isinstance(content, list) or not content:
        raise Refused("Missing required parameter: 'item.content'.", param="item.content")
    for place, part in enumerate(content):
        if part.get("type") not in PARTS[role]:
            raise Refused(
                f"Invalid value: '{part.get('type')}' for an item of role '{role}'.",
                param=f"item.content[{place}].type",
            )
        if part["type"] in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            raise Refused("Invalid text.", param=f"item.content[{place}].text")


def check_session(session: Json) -> None:
    """Check a session's update."""
    if session.get("type") != "realtime":
        raise Refused("Missing required parameter: 'session.type'.", param="session.type")
    if unknown := session.keys() - SESSION_KEYS:
        raise Refused(f"Unknown parameter: 'session.{min(unknown)}'.", code="unknown_parameter")
    if not isinstance(session.get("instructions", ""), str):
        raise Refused("Invalid type for 'session.instructions'.", param="session.instructions")
