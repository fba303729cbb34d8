"""Calls that another worker began, with all that a history may have in it."""

from __future__ import annotations

from recall_livekit import Call

from ..conftest import OpenRecall

__all__ = ["ODD_TURNS", "ROOM", "earlier_call", "odd_call"]

ROOM = "support room"
ODD_TURNS = ["turn 0", "turn 1", "turn 2"]


async def earlier_call(open_recall: OpenRecall, *, tools: bool = False) -> None:
    """Another worker had the call: a few turns, and with `tools` finished and open tool calls."""
    async with open_recall().resume(ROOM) as call:
        call.record_turn("assistant", "hello, how can I help?", message_id="item_hello")
        call.record_turn("user", "a table for four", message_id="item_order")
        if tools:
            use_tools(call)
        call.record_turn("assistant", "it is booked", message_id="item_booked", interrupted=True)


def use_tools(call: Call) -> None:
    """One that ended, with a long id, and one that was running when the worker died."""
    done = call.record_action("book", arguments='{"people": 4}', call_id="call_" + "b" * 60)
    call.record_action(
        "book",
        key=done,
        status="done",
        result="table 7",
        arguments='{"people": 4}',
        call_id="call_" + "b" * 60,
    )
    call.record_action("charge", arguments='{"euros": 20}', call_id="call_charge")


async def odd_call(open_recall: OpenRecall) -> None:
    """Records that no model wrote: ids that are alike in their first 32 characters, or in front of
    a slash, or twice the same; arguments that are no JSON object; a tool of a name that APIs
    refuse; an empty text."""
    async with open_recall().resume(ROOM) as call:
        for place, text in enumerate(ODD_TURNS):
            call.record_turn("assistant", f"reply {place}", message_id="m" * 40 + str(place))
            call.record_turn("assistant", f"and {place}", message_id=f"group/{place}")
            call.record_turn("assistant", f"again {place}", message_id="item_twice")
            call.record_turn("user", text, message_id=f"{'u' * 32}{place}")
        call.record_turn("assistant", "")
        for arguments in ("not json", "[1]", "", '{"cut": ' + "9" * 900):
            call.record_action("charge", arguments=arguments, call_id="call_same" * 9)
        call.record_action("pay by card!", arguments="{}", call_id="")
        done = call.record_action("charge", arguments="{", call_id="x")
        call.record_action("charge", key=done, status="failed", arguments="{", call_id="x")
