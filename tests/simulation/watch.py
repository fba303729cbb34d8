"""What the data tell whoever judges them: each write, at once, as it is in the data."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Watch"]


class Watch(Protocol):
    """Told after each accepted write, and of every request that reaches the data."""

    def step(self) -> None:
        """A request came."""

    def entry(self, position: int, data: bytes) -> None:
        """The entry was created."""

    def replaced(self, position: int, data: bytes) -> None:
        """The entry was overwritten."""

    def cell(self, name: str, value: bytes) -> None:
        """The cell was written."""
