"""What the application wants of its watcher, for whom."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..errors import InvalidSettings
from ..rooms.orders import StandbyKind

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Member, Room

__all__ = ["Policy"]

logger = logging.getLogger("recall_livekit.watcher")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """See `Watcher`, which has the same names.

    Raises:
        InvalidSettings: The fallback is the agent itself; `serve_rooms` without `agent_name`.
    """

    agent_name: str | None = None
    serve_rooms: Callable[[Room], bool] | None = None
    standby: StandbyKind | None = None
    standby_for: Callable[[str], bool] | None = None
    fallback_agent: str | None = None

    def __post_init__(self) -> None:
        """Check what does not go together."""
        if self.serve_rooms is not None and self.agent_name is None:
            raise InvalidSettings('serve_rooms: say which agent, agent_name="" if it has no name')
        if self.fallback_agent is not None and self.fallback_agent in ("", self.agent_name):
            raise InvalidSettings("fallback_agent must be another agent than the one that died")

    def serves(self, room: Room) -> bool:
        """Whether the room must have an agent, whatever the records say."""
        return self.serve_rooms is not None and _asked(self.serve_rooms, room, "serve_rooms")

    def wants_standby(self, call: str) -> bool:
        """Whether somebody is to stand by in this call."""
        if self.standby is None:
            return False
        return self.standby_for is None or _asked(self.standby_for, call, "standby_for")

    def is_agent_of(self, member: Member, lease_name: str | None) -> bool:
        """Whether this agent, which did not say so itself, would be the one of the call.

        A room may have other agents, which transcribe or record, and avatars, which were not
        dispatched and have no name: they are none of our business.
        """
        if member.agent_name is None:
            return False
        expected = self.agent_name or lease_name
        if not expected or not member.agent_name:
            return True
        return member.agent_name in (expected, self.fallback_agent)


def _asked(function: Callable[[T], bool], about: T, name: str) -> bool:
    """A fault of the application's function costs its answer, not the watcher."""
    try:
        return bool(function(about))
    except Exception:
        logger.exception("%s failed: taken as no", name)
        return False
