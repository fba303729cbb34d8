"""How a server is run: every number in one place, with its unit and its reason."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import InvalidSettings
from ..stores.opening import check_namespace

__all__ = ["DEFAULT_PORT", "ServeOptions"]

DEFAULT_PORT = 8480
LEAST_RETAINED = 3600.0
"""A shorter retention would erase calls that are merely on hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where a server listens, and what it does besides. Times in seconds.

    Raises:
        InvalidSettings: A value is outside its range.
    """

    store_url: str
    """The store that it serves, as `Recall.open` takes it."""

    host: str = "127.0.0.1"
    """A name or address of this machine. One that others reach needs a key made first."""

    port: int = DEFAULT_PORT
    """0: any free one; `Listening.url` tells it."""

    unix_path: Path | None = None
    """A Unix socket instead of host and port; whoever may open it counts as this machine."""

    keep_alive: float = 75.0
    """How long an idle connection is kept: longer than the client's 60 s, so that no request
    meets a connection that is just being closed."""

    drain_wait: float = 10.0
    """How long requests under way may take once the server was told to leave."""

    retain: Mapping[str, float] = field(default_factory=dict)
    """By namespace: calls not heard of for longer than this are erased. Others are kept."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.port <= 65535:
            raise InvalidSettings(f"port must be from 0 to 65535, not {self.port}")
        for name in ("keep_alive", "drain_wait"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise InvalidSettings(f"{name} must be a number above zero, not {value!r}")
        for namespace, seconds in self.retain.items():
            check_namespace(namespace)
            if not seconds >= LEAST_RETAINED:
                raise InvalidSettings(
                    f"retain for {namespace} must be at least {LEAST_RETAINED:g} s, not {seconds!r}"
                )

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        if self.unix_path is not None or self.host == "localhost":
            return True
        with suppress(ValueError):  # another name: whatever it points to, others may reach it
            return ipaddress.ip_address(self.host).is_loopback
        return False
