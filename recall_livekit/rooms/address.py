"""Which LiveKit an address means."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["cloud_host"]

CLOUD = ".livekit.cloud"


def cloud_host(url: str) -> str | None:
    """Return the host if it is LiveKit Cloud's, which starts the job of a dead agent again."""
    host = urlsplit(url).hostname or ""
    return host if host.endswith(CLOUD) else None
