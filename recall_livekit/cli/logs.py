"""The log of a command that runs on: lines for a person, or JSON for machines to gather."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from ..withheld import ExcInfo, without_text
from .texts import json_safe, safe

__all__ = ["SafeFormatter", "log_to_stderr"]

QUIET = ("aiohttp", "asyncio", "httpcore2", "httpx2", "livekit")
"""What they tell below a warning is of no use to who runs a watcher."""


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Send the logs of this process to stderr, one line each that no terminal acts on."""
    handler = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s %(message)s"
    handler.setFormatter(_Json() if as_json else SafeFormatter(form))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class SafeFormatter(logging.Formatter):
    """For a person at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line that a terminal does not act on."""
        return safe(super().format(record))


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return the record as an object."""
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json_safe(json.dumps(told, ensure_ascii=False))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802  (logging's own name)
        return without_text(ei)
