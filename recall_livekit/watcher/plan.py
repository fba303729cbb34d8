"""Who is to be dispatched to a room, with what it is told: as its first agent was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..rooms.orders import Orders
from .settings import WatcherSettings

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Dispatched, Member

__all__ = ["Plan", "died_before", "expected_for", "plan"]

SKEW = 5.0
"""Seconds by which LiveKit's clock may be ahead of this one before it is not believed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A dispatch to be made."""

    agent_name: str
    metadata: str = ""
    orders: Orders | None = None


def plan(
    dispatches: Sequence[Dispatched], agent_name: str | None, orders: Orders, *, instead: str = ""
) -> Plan:
    """Return a dispatch of this agent, by default of the room's first, with the metadata that it
    was given then; of `instead` in its place, if that is named."""
    mine = [one for one in dispatches if agent_name in (None, one.agent_name)]
    agents = [one for one in mine if not _helps(one)]
    # LiveKit lists a dispatch without a name for every room, whether or not any worker takes it
    first = next((one for one in agents if one.agent_name), agents[0] if agents else None)
    name = agent_name if agent_name is not None else first.agent_name if first else ""
    return Plan(instead or name, first.metadata if first else "", orders)


def expected_for(
    dispatches: Sequence[Dispatched], spent: dict[str, None], now: float, settings: WatcherSettings
) -> float:
    """Return for how many seconds an agent may still come that somebody else has asked for: a
    watcher that died over it, or the application."""
    ages = [now - one.at for one in dispatches if one.id not in spent and not _helps(one)]
    waits = [settings.join_wait - max(age, 0.0) for age in ages if age > -SKEW]
    return max([0.0, *waits])


def died_before(
    dispatches: Sequence[Dispatched],
    callers: Sequence[Member],
    now: float,
    settings: WatcherSettings,
) -> int:
    """Return how many agents that were dispatched to recover this call died one soon after the
    other, for callers who have been there all the while."""
    since = max((one.joined_at for one in callers), default=0.0)
    deaths, later = 0, now
    for one in reversed(dispatches):
        if one.orders.resume and not _helps(one) and one.at > since:
            if later - one.at >= settings.lived_well:
                break
            deaths, later = deaths + 1, one.at
    return deaths


def _helps(dispatch: Dispatched) -> bool:
    """Whether it asked for a standby or a successor, not for an agent that begins at once."""
    return dispatch.orders.standby is not None or dispatch.orders.handover
