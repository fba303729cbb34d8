"""The address of a Recall server."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from ..errors import InvalidSettings

__all__ = ["check_address", "is_loopback", "is_remote"]


def is_remote(url: str) -> bool:
    """Whether the address is a Recall server's, not a store's."""
    return url.split(":", 1)[0].lower() in ("http", "https")


def check_address(url: str) -> str:
    """Return the address without a slash at its end. It may have a path, as behind a proxy.

    Raises:
        InvalidSettings: It is none, or carries what does not belong into an address.
    """
    parts = _split(url)
    if parts.username or parts.password:
        raise InvalidSettings(
            "the address of a Recall server carries no user or password: give the key as "
            "RECALL_API_KEY, RECALL_API_KEY_FILE or api_key="
        )
    if parts.query or parts.fragment or any(char.isspace() for char in url):
        raise InvalidSettings(f"write https://{parts.hostname}, without a query, fragment or space")
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine, where nobody listens on the way."""
    host = _split(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        named = False
    if not named:
        raise InvalidSettings(
            "the address names no server: write https://HOST or https://HOST:PORT, "
            "for instance https://recall.internal"
        )
    return parts
