"""What a dispatch of ours tells the agent that it starts, and what an agent says of itself.

Orders travel as an attribute of the dispatch, so that the application's own metadata stays as it
was. The metadata is read too: who dispatches by hand may write ``{"recall": {...}}`` there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from pydantic import ValidationError

from ..models import Value

__all__ = [
    "ALIVE",
    "HAND_OVER",
    "ORDERS",
    "STANDBY",
    "Orders",
    "Pulse",
    "StandbyKind",
    "read_orders",
]

ORDERS = "recall.orders"
"""The dispatch's attribute that holds `Orders` as JSON."""
STANDBY = "recall.standby"
"""The participant's attribute by which a standby is told from the agent: its kind; "" of none."""
ALIVE = "recall.alive"
"""The RPC method that every agent of ours answers with its `Pulse`, at once."""
HAND_OVER = "recall.hand_over"
"""The RPC method that tells an agent to hand its call over to a standby in the room."""

StandbyKind = Literal["following", "joined"]


class Orders(Value):
    """Why this agent was dispatched.

    `resume`: an agent was here before. `standby`: wait until the call is free. `handover`: be the
    successor that an agent of a leaving worker hands its call over to.
    """

    resume: bool = False
    standby: StandbyKind | None = None
    handover: bool = False


class Pulse(Value):
    """How an agent stands, as it answers `ALIVE`: the call's `state` on its worker."""

    state: str
    epoch: int = 0
    standby: StandbyKind | None = None

    @property
    def waits(self) -> bool:
        """Whether it would take the call if that were free."""
        return self.standby is not None or self.state in ("standby", "read_only")


def read_orders(attributes: Mapping[str, str], metadata: str) -> Orders:
    """Return the orders of a job; none, if there are none that this version understands."""
    try:
        if ORDERS in attributes:
            return Orders.model_validate_json(attributes[ORDERS])
        told = json.loads(metadata or "{}")
        return (
            Orders.model_validate(told.get("recall") or {}) if isinstance(told, dict) else Orders()
        )
    except (ValidationError, ValueError):
        return Orders()
