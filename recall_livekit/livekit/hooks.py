"""What an application is asked and told about its call, whatever its agents' bases are."""

from __future__ import annotations

from typing import Protocol

from ..models import Briefing

__all__ = ["Hooks"]


class Hooks(Protocol):
    """What a `RecallAgent`, or what was given to `attach`, is asked and told."""

    async def on_fresh(self) -> None:
        """A new call begins."""

    async def on_resume(self, briefing: Briefing | None) -> None:
        """A call goes on."""

    async def on_handover(self, briefing: Briefing) -> None:
        """A call goes on that another worker gave away between two sentences."""

    async def on_lease_lost(self, reason: str) -> None:
        """Another worker has the call."""
