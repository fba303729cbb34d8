"""What is needed of LiveKit's rooms, by name: tests and simulations stand in for a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import RoomsUnavailable
from .orders import Orders, Pulse

if TYPE_CHECKING:  # that module loads LiveKit's API and an HTTP client
    from .livekit_rooms import Dispatched, Member, Room

__all__ = ["Refused", "Rooms", "is_open"]


class Refused(RoomsUnavailable):
    """The server answers, and refuses this one request: others may do well."""


class Rooms(Protocol):
    """What `LiveKitRooms` does. Every method raises `RoomsUnavailable` if nobody answers, and
    `Refused` if it is refused."""

    async def rooms(self, names: Sequence[str] = ()) -> list[Room]:
        """Return the rooms that are open, all or those of these names."""

    async def members(self, room: str) -> list[Member]:
        """Return who is in the room; nobody, if there is no such room."""

    async def dispatches(self, room: str) -> list[Dispatched]:
        """Return the dispatches that the room had, oldest first."""

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        """Return how this agent stands; None if it is frozen, dead or gone."""

    async def perform(
        self, room: str, identity: str, method: str, payload: str = "", *, seconds: float
    ) -> str:
        """Call a method that a participant registered, and return its answer.

        Raises:
            Unanswered, Unsupported.
        """

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


async def is_open(rooms: Rooms, name: str, sid: str) -> bool:
    """Whether this very room is open, and not a later one of its name; any of its name will do if
    the sid is "". A dispatch to a room that is gone would make it again.

    Raises:
        RoomsUnavailable.
    """
    return any(room.sid == sid or not sid for room in await rooms.rooms([name]))
