"""What happens to calls, as a Recall server tells it to whoever listens."""

from __future__ import annotations

from typing import Literal

from ..models import Outcome, Value

__all__ = ["CallEvent", "EventKind"]

EventKind = Literal["broken", "lapsed", "taken", "released", "missed"]


class CallEvent(Value):
    """Something happened to the lease of a call, or of a chain of Recall's own. It is a hint to
    look at the call, never evidence by itself: events may be missing, late or told twice.

    * `broken`: the stream of the holder of `epoch` broke; it may come back within the grace.
    * `lapsed`: it did not come back.
    * `taken`: a writer took the lease; `epoch` is the new one.
    * `released`: the holder gave it back, with this `outcome`.
    * `missed`: something may not have been told: look at all calls. Every stream begins with it,
      and so does one that was opened again; a listener that is too slow is told it too. It names
      no call.

    Each server process tells what was done through it alone: of several on one store each knows
    only its own. A holder that falls silent on a stream that stays open is not told either.
    """

    event: EventKind
    call_id: str = ""
    epoch: int = 0
    outcome: Outcome | None = None
