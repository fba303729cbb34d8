"""What a watcher counts, for whoever exports it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counts"]


@dataclass(slots=True)
class Counts:
    """Totals since the watcher began, and a few things as they are now. Plain numbers that only
    the watcher changes; anybody may read them at any time."""

    # --- totals -------------------------------------------------------------------------------

    looks: int = 0
    """Looks at a whole room: who is in it, and how the records stand."""
    asked: int = 0
    """Questions to agents whether they live."""
    silences: int = 0
    """Those that were not answered in time."""
    deaths: int = 0
    """Calls found without a live agent that had one: killed, frozen, crashed or released."""
    evicted: int = 0
    """Agents thrown out of their room because they were frozen or dead."""
    leases_broken: int = 0
    """Leases taken from a holder that did not answer."""
    dispatched: int = 0
    """Agents asked for, standbys not among them."""
    joined: int = 0
    """Those that came."""
    join_seconds: float = 0.0
    """The sum of how long these took to come; divide by `joined`."""
    dropped: int = 0
    """Those that did not come in time, and were asked for again."""
    called_off: int = 0
    """Those that were withdrawn, or not even asked for, because nobody needed them any more."""
    stood_in: int = 0
    """Calls that a standby took over."""
    standbys_dispatched: int = 0
    """Standbys asked for."""
    standbys_joined: int = 0
    """Those that came."""
    given_up: int = 0
    """Calls given up because each of their agents died."""
    fallbacks: int = 0
    """Fallback agents that came for these."""
    rooms_outages: int = 0
    """How often LiveKit's server could not be reached."""
    records_outages: int = 0
    """How often the records could not be."""

    # --- now ----------------------------------------------------------------------------------

    acting: bool = False
    """Whether this watcher is the one that acts."""
    rooms: int = 0
    """Rooms that are watched."""
    waiting: int = 0
    """Calls that wait for an agent."""
    rooms_reached: bool = True
    """Whether LiveKit's server answered last."""
    records_reached: bool = True
    """Whether the records did."""
