"""What is needed of LiveKit's rooms, by name: tests and simulations stand in for a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from .orders import Orders, Pulse

if TYPE_CHECKING:  # that module loads LiveKit's API and an HTTP client
    from .livekit_rooms import Dispatched, Member, Room

__all__ = ["Rooms"]


class Rooms(Protocol):
    """What `LiveKitRooms` does. Every method raises `RoomsUnavailable` if nobody answers."""

    async def rooms(self, names: Sequence[str] = ()) -> list[Room]:
        """Return the rooms that are open, all or those of these names."""

    async def members(self, room: str) -> list[Member]:
        """Return who is in the room; nobody, if there is no such room."""

    async def dispatches(self, room: str) -> list[Dispatched]:
        """Return the dispatches that the room had, oldest first."""

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        """Return how this agent stands; None if it is frozen, dead or gone."""

    async def dispatch(
        self, room: Room, agent_name: str, *, metadata: str = "", orders: Orders | None = None
    ) -> str:
        """Ask for one more agent; return the dispatch's id. It may be dropped in silence."""

    async def withdraw(self, room: str, dispatch: str) -> None:
        """End a dispatch and its job, if they are there."""

    async def evict(self, room: str, identity: str) -> None:
        """Throw a participant out, if it is there."""

    async def aclose(self) -> None:
        """Close the connections."""
