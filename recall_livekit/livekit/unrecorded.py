"""Records that were refused: said, but not a line each."""

from __future__ import annotations

import logging

from ..errors import RecallError

__all__ = ["Unrecorded"]

logger = logging.getLogger("recall_livekit")

EVERY = 100


class Unrecorded:
    """Counts what could not be recorded of one kind."""

    def __init__(self, what: str) -> None:
        """`what` is a record of it, as a person would say: "a turn"."""
        self._what = what
        self._count = 0

    def count(self, error: RecallError) -> None:
        """Say it once, and again at every hundredth: one line each would drown the log."""
        if self._count % EVERY == 0:
            logger.error("%s was not recorded (%d before it): %s", self._what, self._count, error)
        self._count += 1
