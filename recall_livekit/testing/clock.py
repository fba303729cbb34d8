"""A clock that a test moves by hand."""

from __future__ import annotations

import anyio

__all__ = ["FakeClock"]


class FakeClock:
    """Time stands still until `advance`. Two fakes with another `skew` are two workers' clocks."""

    def __init__(
        self, *, start: float = 1_800_000_000.0, skew: float = 0.0, name: str = ""
    ) -> None:
        self._elapsed = 0.0
        self._start = start
        self._name = name
        self._ids = 0
        self._moved = anyio.Event()
        self.skew = skew
        """Seconds by which the wall clock is wrong; may be changed: a jump."""

    def now(self) -> float:
        return self._start + self._elapsed + self.skew

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds
        self._moved.set()
        self._moved = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        due = self._elapsed + seconds
        while self._elapsed < due:
            await self._moved.wait()

    def jitter(self, seconds: float) -> float:
        return seconds

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._name}{self._ids:x}".rjust(16, "0")
