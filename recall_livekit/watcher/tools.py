"""What the watches of all rooms share."""

from __future__ import annotations

from dataclasses import dataclass

from ..rooms.protocol import Rooms
from ..seams import Clock
from ..transport import Transport
from .acting import Hands
from .counts import Counts
from .leading import Leader
from .looking import Looker
from .pacing import Turns
from .policy import Policy
from .reach import Reach
from .settings import WatcherSettings

__all__ = ["Tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """One of each, made by the watcher."""

    rooms: Rooms
    transport: Transport
    looker: Looker
    hands: Hands
    leader: Leader
    turns: Turns
    reach: Reach
    clock: Clock
    settings: WatcherSettings
    policy: Policy
    counts: Counts
    follows: bool
    """Whether each lease is waited for: nobody else tells of it."""
