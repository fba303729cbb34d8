"""What the application's `same_call` says of a call's run: asked here, told to the server."""

from __future__ import annotations

import logging
from collections import OrderedDict

from ..engine.requests import Reading
from ..engine.runs import Origin, SameCall
from ..seams import Clock

__all__ = ["Verdicts"]

logger = logging.getLogger("recall_livekit")

KNOWN = 4096
"""How many verdicts are kept in memory."""


class Verdicts:
    """The newest verdict on each call, for a worker of one origin. It is for one run, by number:
    a server that has come to another one decides that by its own rule (rule 5)."""

    def __init__(self, same_call: SameCall | None, clock: Clock) -> None:
        """Know none. Without `same_call` there never is one."""
        self._same_call = same_call
        self._clock = clock
        self._known: OrderedDict[tuple[str, Origin], tuple[int, bool]] = OrderedDict()

    def told(self, call: str, origin: Origin) -> Origin:
        """Return the origin with what is known of the call."""
        verdict = self._known.get((call, origin))
        return origin if verdict is None else origin.model_copy(update={"verdict": verdict})

    def judge(self, call: str, origin: Origin, reading: Reading) -> bool:
        """Ask about the run that this read tells of; return whether the server decided the read
        otherwise, so that it is to be read again."""
        if self._same_call is None or reading.previous is None:
            return False
        same = self._ask(reading.previous, origin)
        self._known[call, origin] = (reading.current_run, same)
        self._known.move_to_end((call, origin))
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)
        return same != (reading.run == reading.current_run)

    def _ask(self, previous: Origin, origin: Origin) -> bool:
        """A fault of the application's function makes a new run: the lesser harm."""
        assert self._same_call is not None
        current = origin.model_copy(update={"at": self._clock.now()})
        try:
            return bool(self._same_call(previous, current))
        except Exception:
            logger.exception("same_call failed: taken as another call")
            return False
