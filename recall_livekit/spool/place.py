"""Where a worker spools to, and the name of the place that it spools for."""

from __future__ import annotations

import os
from pathlib import Path

from ..remote.address import check_address
from ..remote.keys import ApiKey, namespace_of

__all__ = ["server_place", "spool_directory"]

DEFAULT = "./recall-spool"


def spool_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """Return where workers spool: what was given, else `RECALL_SPOOL`, else ``./recall-spool``,
    which follows the working directory."""
    return Path(given or os.environ.get("RECALL_SPOOL") or DEFAULT).absolute()


def server_place(url: str, api_key: ApiKey | None = None) -> str:
    """Return the name of a server and the key's namespace there: what is spooled for one is never
    drained into another. Where a function returns the keys, give each namespace a directory.

    Raises:
        InvalidSettings: It is no address.
    """
    return f"{check_address(url)}#{namespace_of(api_key)}"
