"""Which store an address names."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import InvalidSettings
from .base import Store

__all__ = ["DEFAULT_NAMESPACE", "check_namespace", "directory_of", "open_store"]

logger = logging.getLogger("recall_livekit")

DEFAULT_NAMESPACE = "default"
"""The one whose records lie where a worker without a server would have them."""
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def check_namespace(namespace: str) -> str:
    """Return `namespace` if it is 1 to 63 characters of ``[a-z0-9-]``, the first no hyphen.

    Raises:
        InvalidSettings: It is not.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidSettings(
            f"{namespace!r} is no namespace: use 1 to 63 of a-z, 0-9 and -, not beginning with -"
        )
    return namespace


def open_store(url: str, namespace: str = DEFAULT_NAMESPACE) -> Store:
    """Return the store at `url` that holds the calls of `namespace`. It opens nothing yet.

    Raises:
        InvalidSettings: The address names no store of this version.
    """
    scheme = url.split(":", 1)[0]
    if scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore()
    if scheme == "sqlite":
        from .sqlite import SqliteStore

        directory = directory_of(url)
        if check_namespace(namespace) != DEFAULT_NAMESPACE:
            directory = directory / "namespaces" / namespace
        logger.info("records are in %s", directory)
        return SqliteStore(directory)
    raise InvalidSettings(
        f"no store for {scheme}: addresses in this version; use sqlite:///DIRECTORY, or the "
        "https:// address of a Recall server (memory: is for a test, gone with the process)"
    )


def directory_of(url: str) -> Path:
    """Return the directory that a ``sqlite:`` address names, in full.

    Raises:
        InvalidSettings: It names none.
    """
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path:
        raise InvalidSettings(
            f"{url!r} names no directory: write sqlite:///./recall-data or sqlite:////var/lib/recall"
        )
    return Path(path).resolve()
