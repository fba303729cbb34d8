"""What OpenAI refuses, as far as a voice agent's history can break it.

Each rule is one that the real API answers with status 400, in its words; where a model behind
such an API is laxer (arguments that are no JSON), the strict reading holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["Refused", "check_input", "check_messages", "check_tools"]

Json = dict[str, Any]

CALL_ID_CHARS = {"chat": 40, "responses": 64, "realtime": 32}
ITEM_ID_CHARS = 32
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
ROLES = ("system", "developer", "user", "assistant")


class Refused(Exception):
    """An answer of status 400 (or an `error` event), as OpenAI words it."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code

    def body(self) -> Json:
        """The `error` object of the answer."""
        return {
            "type": "invalid_request_error",
            "message": self.message,
            "param": self.param,
            "code": self.code,
        }


def limited(value: object, limit: int, param: str) -> str:
    """Return a string of 1 to `limit` characters, or refuse it."""
    if not isinstance(value, str) or not value:
        raise Refused(f"Invalid '{param}': expected a non-empty string.", param=param)
    if len(value) > limit:
        raise Refused(
            f"Invalid '{param}': string too long. Expected a string with maximum length {limit}, "
            f"but got a string with length {len(value)} instead.",
            param=param,
            code="string_above_max_length",
        )
    return value


def check_call(call: Json, limit: int, param: str, *, id_name: str = "call_id") -> str:
    """Check a tool call's id, name and arguments; return the id."""
    call_id = limited(call.get(id_name), limit, f"{param}.{id_name}")
    function = call.get("function", call)
    if not NAME.match(function.get("name") or ""):
        raise Refused(
            f"Invalid '{param}.name': string does not match pattern.", param=f"{param}.name"
        )
    check_arguments(function.get("arguments"), f"{param}.arguments")
    return call_id


def check_arguments(arguments: object, param: str) -> None:
    try:
        fine = isinstance(json.loads(arguments), dict) if isinstance(arguments, str) else False
    except ValueError:
        fine = False
    if not fine:
        raise Refused(f"Invalid '{param}': expected a JSON object as a string.", param=param)


# ---- chat completions


def check_messages(messages: object) -> None:
    """Check the messages of a chat completion."""
    if not isinstance(messages, list) or not messages:
        raise Refused("Invalid 'messages': expected a non-empty array.", param="messages")
    awaited: list[str] = []
    for place, message in enumerate(messages):
        param = f"messages[{place}]"
        if message.get("role") == "tool":
            awaited = _answered(message, awaited, param)
        elif awaited:
            break
        else:
            awaited = _check_message(message, param)
    if awaited:
        raise Refused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(awaited),
            param="messages",
        )


def _answered(message: Json, awaited: Sequence[str], param: str) -> list[str]:
    if message.get("tool_call_id") not in awaited:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            param=f"{param}.role",
        )
    _check_text(message.get("content"), "text", param)
    return [one for one in awaited if one != message["tool_call_id"]]


def _check_message(message: Json, param: str) -> list[str]:
    """Check one message that is no tool's; return the calls that it makes."""
    role = message.get("role")
    if role not in ROLES:
        raise Refused(
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', "
            "'function', 'tool', and 'developer'.",
            param=f"{param}.role",
        )
    calls = message.get("tool_calls")
    if calls is None or message.get("content") is not None:
        _check_text(message.get("content"), "text", param)
    if calls is None:
        return []
    if role != "assistant" or not calls:
        raise Refused(f"Invalid '{param}.tool_calls'.", param=f"{param}.tool_calls")
    limit = CALL_ID_CHARS["chat"]
    return [
        check_call(call, limit, f"{param}.tool_calls[{place}]", id_name="id")
        for place, call in enumerate(calls)
    ]


def _check_text(content: object, kind: str, param: str) -> None:
    if isinstance(content, str):
        return
    parts = content if isinstance(content, list) else []
    if not parts or any(part.get("type") != kind for part in parts):
        raise Refused(f"Invalid value for 'content': expected a string or parts ({kind}).",
                      param=f"{param}.content")  # fmt: skip


def check_tools(body: Json) -> None:
    """Check the tools of a request, and what is only allowed beside them."""
    names = [tool.get("function", tool).get("name") for tool in body.get("tools") or []]
    if any(not NAME.match(name or "") for name in names) or len(set(names)) < len(names):
        raise Refused("Invalid 'tools': names must match the pattern and be unique.", param="tools")
    for name in ("tool_choice", "parallel_tool_calls"):
        if body.get(name) not in (None, "none") and not names:
            raise Refused(f"'{name}' is only allowed when 'tools' are specified.", param=name)


# ---- responses


def check_input(items: object, open_calls: Sequence[str] = ()) -> None:
    """Check the input items of a response; `open_calls` are those of the one before it."""
    if not isinstance(items, list):
        raise Refused("Invalid 'input': expected an array of items.", param="input")
    calls, answered = list(open_calls), list[str]()
    for place, item in enumerate(items):
        param = f"input[{place}]"
        kind = item.get("type", "message")
        if kind == "message":
            _check_input_message(item, param)
        elif kind == "function_call":
            calls.append(check_call(item, CALL_ID_CHARS["responses"], param))
        elif kind == "function_call_output":
            answered.append(_check_output(item, calls, param))
        else:
            raise Refused(f"Invalid value: '{kind}'.", param=f"{param}.type")
    if missing := [one for one in calls if one not in answered]:
        raise Refused(f"No tool output found for function call {missing[0]}.", param="input")


def _check_input_message(item: Json, param: str) -> None:
    if item.get("role") not in ROLES:
        raise Refused(f"Invalid value: '{item.get('role')}'.", param=f"{param}.role")
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    _check_text(item.get("content"), kind, param)


def _check_output(item: Json, calls: Sequence[str], param: str) -> str:
    call_id = limited(item.get("call_id"), CALL_ID_CHARS["responses"], f"{param}.call_id")
    if call_id not in calls:
        raise Refused(
            f"No tool call found for function call output with call_id {call_id}.", param="input"
        )
    if not isinstance(item.get("output"), str):
        raise Refused(f"Invalid '{param}.output': expected a string.", param=f"{param}.output")
    return call_id
