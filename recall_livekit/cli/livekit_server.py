"""Which LiveKit server is meant, and whether it takes the key."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from ..errors import InvalidSettings, RoomsUnavailable
from .texts import public_url

__all__ = ["check_livekit_url", "missing_variables", "refuses_key"]

_SCHEMES = ("ws", "wss", "http", "https")
_NEEDED = ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET")


def missing_variables(variables: Mapping[str, str]) -> list[str]:
    """Return which of the variables that name a LiveKit server and its key are not set."""
    return [name for name in _NEEDED if not variables.get(name)]


def check_livekit_url(url: str) -> str:
    """Return the address of a LiveKit server.

    Raises:
        InvalidSettings: It is none, or carries what does not belong into an address.
    """
    parts = _split(url)
    if parts is None or parts.scheme not in _SCHEMES or not parts.hostname:
        raise InvalidSettings(
            f"{public_url(url)!r} is no LiveKit server: write ws://HOST:PORT or wss://HOST"
        )
    if parts.username or parts.password:
        raise InvalidSettings(
            "the address of a LiveKit server carries no user or password: give the key as "
            "LIVEKIT_API_KEY and LIVEKIT_API_SECRET"
        )
    return url


def refuses_key(error: RoomsUnavailable) -> bool:
    """Whether LiveKit's server answered, and does not take the key."""
    return getattr(error.__cause__, "status", None) in (401, 403)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return None if parts.port == 0 else parts
    except ValueError:
        return None
