"""Where a worker spools to."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["spool_directory"]

DEFAULT = "./recall-spool"


def spool_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """Return where workers spool: what was given, else `RECALL_SPOOL`, else ``./recall-spool``,
    which follows the working directory."""
    return Path(given or os.environ.get("RECALL_SPOOL") or DEFAULT).absolute()
