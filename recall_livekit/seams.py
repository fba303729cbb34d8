"""The only doors to time and chance, so that a simulation can stand in for both."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

import anyio

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Time and chance as one worker has them. Seconds, as floats."""

    def now(self) -> float:
        """Wall-clock time since 1970. It may jump and may be wrong: never safety, only evidence."""

    def monotonic(self) -> float:
        """A clock of this worker alone that never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def new_id(self) -> str:
        """A name that nobody has used before, 16 characters of ``[0-9a-f]``."""

    def jitter(self, seconds: float) -> float:
        """A part of `seconds`, between a half and the whole, so that many do not come at once."""


class SystemClock:
    """The machine's own."""

    def now(self) -> float:
        """See `Clock`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Clock`."""
        await anyio.sleep(seconds)

    def new_id(self) -> str:
        """See `Clock`."""
        return secrets.token_hex(8)

    def jitter(self, seconds: float) -> float:
        """See `Clock`."""
        return seconds * (0.5 + secrets.randbelow(1 << 16) / (1 << 17))
