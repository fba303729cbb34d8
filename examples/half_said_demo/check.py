"""Was anything charged twice, or lost? What the caller paid, against what the records know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recall_livekit import Action, Briefing

from .payments import Ledger
from .script import CENTS, charged

__all__ = ["judge_charges"]


def judge_charges(ledger: Ledger, briefing: Briefing) -> list[str]:
    """Return what is wrong: each order is to be charged once, and the records are to know it."""
    faults = [fault for order in CENTS for fault in _judge(order, ledger, briefing.finished)]
    return [*faults, *(f"still open: {action.arguments}" for action in briefing.actions)]


def _judge(order: str, ledger: Ledger, finished: Sequence[Action]) -> Iterable[str]:
    receipts = ledger.receipts(order)
    if not receipts:
        yield f"lost: the {order} was never charged"
    if len(receipts) > 1:
        yield f"charged twice: the {order}, receipts {', '.join(map(str, receipts))}"
    known = {action.result for action in finished if action.status == "done"}
    for receipt in receipts:
        if charged(receipt) not in known:
            yield f"lost: the records do not know of receipt {receipt}"
