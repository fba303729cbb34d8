"""Every number of the watcher that somebody may want to turn, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import InvalidSettings

__all__ = ["WatcherSettings"]

_COUNTS = ("dispatches_at_once", "give_up_after", "looks_at_once", "most_rooms")


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherSettings:
    """How a watcher behaves. Times in seconds.

    Raises:
        InvalidSettings: A value is outside its range.
    """

    lease_ttl: float = 2.0
    """How long the watcher that acts may be silent before another one acts (2 s to 1 h). A killed
    one is noticed at once; this is for one that is frozen or cut off."""

    list_interval: float = 1.0
    """How often all rooms are listed, and a young one that is not ours, or not yet, is looked at:
    how long a new call goes without a watcher, if nobody tells of it."""

    young_room: float = 30.0
    """How long a room is young."""

    sweep_interval: float = 5.0
    """How often an older room that is not ours is looked at."""

    look_interval: float = 2.0
    """How often a room with a live agent is looked at whole: who is in it, the records, and
    whether it has its standby."""

    ask_interval: float = 0.7
    """How often the agent of a live call is asked: how long a frozen one goes unnoticed."""

    ask_wait: float = 0.25
    """How long its answer may take, which takes 2 to 15 ms on a local network."""

    ask_again_wait: float = 0.75
    """The same of the second time, before anything is done to it: it may have been busy. Whoever
    blocks its event loop for both, one second, is taken for frozen."""

    settle_wait: float = 2.0
    """An agent that was just seen for the first time may take so long to answer."""

    join_wait: float = 1.0
    """How long after a dispatch its agent may take to join, or to take the call: it is there in
    0.4 s, or was dropped in silence. Twice, three and six times as long at the next tries, for an
    entrypoint that is slow: after 5 s LiveKit's server tells whether a worker took the job. The
    next dispatch of the same agent name waits for it."""

    coming_wait: float = 10.0
    """How long an agent may still take to join, if it took the call or a worker took its job."""

    join_poll: float = 0.05
    """How often it is looked for meanwhile."""

    dispatches_at_once: int = 1
    """How many dispatches of one agent name are under way at once. A worker that launches jobs
    refuses more of them: four at once need four idle processes that are all free."""

    retry_first: float = 0.2
    """The pause after a dispatch that was dropped; it doubles up to `retry_last`."""

    retry_last: float = 2.0
    """The longest of these pauses: no worker is free, and one may be at any time."""

    first_wait: float = 2.0
    """How long a room that was never served waits for LiveKit's own dispatch (`serve_rooms`)."""

    standby_wait: float = 1.0
    """How long a standby may take to act once the call is free."""

    absent_wait: float = 2.0
    """How long a call may be held by a worker that is not in its room: one that is on its way in,
    or out. Then its lease is broken."""

    standby_retry_first: float = 2.0
    """The pause after a standby that did not come; it doubles up to `standby_retry_last`."""

    standby_retry_last: float = 60.0
    """The longest of these pauses: a standby is a comfort, not a need."""

    give_up_after: int = 5
    """So many agents may die one soon after the other before a call is given up."""

    lived_well: float = 60.0
    """An agent that lived so long did not die of the call: the count begins anew."""

    pause_first: float = 1.0
    """The least time between the second agent of a call whose agents die and the third; it doubles
    with each, up to `pause_last`. Who lived longer is replaced at once."""

    pause_last: float = 15.0
    """The longest of these pauses."""

    outage_wait: float = 0.5
    """How soon LiveKit's server, or the records, are tried again when they did not answer."""

    looks_at_once: int = 64
    """How many rooms are looked at or asked at once: what a watcher may cost LiveKit's server."""

    most_rooms: int = 20_000
    """How many rooms one watcher knows; it says so if there are more."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidSettings(f"{field.name} must be a number above zero, not {value!r}")
            if field.name in _COUNTS and not isinstance(value, int):
                raise InvalidSettings(f"{field.name} must be a whole number, not {value!r}")
        if not 2.0 <= self.lease_ttl <= 3600.0:
            raise InvalidSettings("lease_ttl must be from 2 seconds to 1 hour")
