"""Logs as JSON lines: for machines to gather, and without a word that was said."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from ..withheld import ExcInfo, without_text

__all__ = ["log_as_json"]


class _Formatter(JsonFormatter):
    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802  (logging's own name)
        return without_text(ei)


def log_as_json(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the logs of this process to `stream` (stderr by default), one JSON object a line.

    A call is named by the hash that names its file in the store, never by its id.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        _Formatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "at", "levelname": "level", "name": "logger"},
            reserved_attrs=[*RESERVED_ATTRS, "color_message"],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # what it tells besides, we tell
