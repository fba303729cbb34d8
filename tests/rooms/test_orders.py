"""What a dispatch tells the agent that it starts."""

import json

import pytest

from recall_livekit.rooms.orders import ORDERS, Orders, Pulse, read_orders


@pytest.mark.parametrize(
    "orders",
    [Orders(), Orders(resume=True), Orders(standby="joined", handover=True)],
)
def test_orders_arrive_as_they_were_sent(orders: Orders) -> None:
    sent = {ORDERS: orders.model_dump_json(exclude_defaults=True), "their.own": "x"}
    assert read_orders(sent, "their own metadata") == orders


def test_who_dispatches_by_hand_may_write_them_in_the_metadata() -> None:
    metadata = json.dumps({"customer": 7, "recall": {"resume": True}})
    assert read_orders({}, metadata) == Orders(resume=True)
    assert read_orders({ORDERS: '{"standby": "following"}'}, metadata).resume is False


@pytest.mark.parametrize(
    "metadata",
    ["", "text", "[]", "7", "{", '{"recall": 7}', '{"recall": []}', '{"recall": {"resume": "?"}}'],
)
def test_what_is_no_order_is_none(metadata: str) -> None:
    assert read_orders({}, metadata) == Orders()
    assert read_orders({ORDERS: metadata}, "") == Orders()


def test_an_order_of_a_newer_version_is_taken_for_what_is_understood() -> None:
    assert read_orders({ORDERS: '{"resume": true, "newer": 1}'}, "") == Orders(resume=True)
    assert Pulse.model_validate_json('{"state": "holding", "newer": 1}').state == "holding"
