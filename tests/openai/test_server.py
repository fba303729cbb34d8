"""The server itself: what it must refuse, or the other tests here prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from .conversation import Conversation, check_session
from .rules import Refused, check_input, check_messages, check_tools

Json = dict[str, Any]

USER = {"role": "user", "content": "hello"}


def chat_call(call_id: str = "call_1", arguments: str = "{}", name: str = "book") -> Json:
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def chat_output(call_id: str = "call_1") -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": "done"}


def call(call_id: str = "call_1", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "book", "arguments": arguments}


def output(call_id: str = "call_1") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


def test_a_chat_that_is_in_order_passes() -> None:
    check_messages([{"role": "developer", "content": "x"}, USER, chat_call(), chat_output(), USER])


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "non-empty array"),
        ([{"role": "caller", "content": "x"}], "Invalid value: 'caller'"),
        ([{"role": "assistant", "content": None}], "content"),
        ([chat_output()], "must be a response to"),
        ([chat_call(), USER, chat_output()], "did not have response messages: call_1"),
        ([USER, chat_call()], "did not have response messages: call_1"),
        ([chat_call(), chat_output(), chat_output()], "must be a response to"),
        ([chat_call("c" * 41), chat_output("c" * 41)], "maximum length 40"),
        ([chat_call(arguments="{'a': 1}"), chat_output()], "JSON object"),
        ([chat_call(name="book a table"), chat_output()], "pattern"),
    ],
)
def test_a_chat_out_of_order_is_refused(messages: list[Json], why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_messages(messages)


@pytest.mark.parametrize(
    ("items", "open_calls", "why"),
    [
        ("hello", (), "array of items"),
        ([{"role": "tool", "content": "x"}], (), "Invalid value: 'tool'"),
        ([output()], (), "No tool call found .* call_1"),
        ([output(), call()], (), "No tool call found .* call_1"),
        ([call()], (), "No tool output found for function call call_1"),
        ([USER], ("call_1",), "No tool output found for function call call_1"),
        ([call("c" * 65), output("c" * 65)], (), "maximum length 64"),
        ([call(arguments="")], (), "JSON object"),
        ([{"type": "agent_handoff"}], (), "Invalid value: 'agent_handoff'"),
    ],
)
def test_input_out_of_order_is_refused(items: object, open_calls: tuple[str], why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_input(items, open_calls)


def test_tools_are_needed_for_a_choice() -> None:
    with pytest.raises(Refused, match="only allowed when 'tools'"):
        check_tools({"tool_choice": "required"})
    check_tools({"tool_choice": "required", "tools": [{"type": "function", "name": "book"}]})


def message(item_id: str, role: str = "user") -> Json:
    part = {"type": "input_text", "text": "hello"}
    return {"id": item_id, "type": "message", "role": role, "content": [part]}


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (message("one"), "already exists"),
        (message("i" * 33), "maximum length 32"),
        (message("two", "developer"), "Invalid value: 'developer'"),
        (message("two", "assistant"), "for an item of role 'assistant'"),
        ({**message("two"), "content": []}, "Missing required parameter"),
        ({**message("two"), "created_at": 1}, "Unknown parameter"),
        ({**output(), "id": "two"}, "not found in conversation"),
        ({**call("c" * 33), "id": "two"}, "maximum length 32"),
        ({**call(arguments="nothing"), "id": "two"}, "JSON object"),
    ],
)
def test_an_item_that_does_not_fit_is_refused(item: Json, why: str) -> None:
    conversation = Conversation()
    conversation.create(message("one"), None)
    with pytest.raises(Refused, match=why):
        conversation.create(item, None)


def test_items_have_their_places() -> None:
    conversation = Conversation()
    assert conversation.create(message("two"), None) is None
    assert conversation.create(message("one"), "root") is None
    assert conversation.create(message("three"), "two") == "two"
    assert [item["id"] for item in conversation.items] == ["one", "two", "three"]
    with pytest.raises(Refused, match="'five' does not exist"):
        conversation.create(message("four"), "five")
    conversation.create({**call(), "id": "call"}, None)
    with pytest.raises(Refused, match="not found in conversation"):
        conversation.create({**output(), "id": "output"}, "three")  # in front of its call


def test_a_call_and_its_output_go_together() -> None:
    conversation = Conversation()
    conversation.create({**call(), "id": "call"}, None)
    with pytest.raises(Refused, match="No tool output found for function call call_1"):
        conversation.check_whole()
    conversation.create({**output(), "id": "output"}, None)
    conversation.check_whole()
    conversation.delete("call")
    with pytest.raises(Refused, match="not found in conversation"):
        conversation.check_whole()


def test_a_session_has_known_fields_alone() -> None:
    check_session({"type": "realtime", "instructions": "Be kind."})
    for wrong in ({}, {"type": "realtime", "voice": "x"}, {"type": "realtime", "instructions": 1}):
        with pytest.raises(Refused):
            check_session(wrong)
