"""What nobody foresaw: logged with where it happened, and without a word that was said."""

from __future__ import annotations

import logging
import traceback

__all__ = ["log_fault"]

logger = logging.getLogger("recall_livekit.server")


def log_fault(error: Exception, where: str) -> None:
    """Log the class of `error` and its frames, but not its text: it may quote a record."""
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            log_fault(one, where)
        return
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("a fault in %s: %s\n%s", where, type(error).__name__, frames)
