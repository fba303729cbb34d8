"""How likely everything is. A mutant that needs a rare meeting gets odds of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from recall_livekit import Settings
from recall_livekit.testing.faults import Faults

__all__ = ["CALM", "OUTAGE", "Kind", "Odds", "settings", "spooling"]

Kind = Literal["bucket", "table"]
CALM = Faults(delay=1.0, longest_delay=0.02)
OUTAGE = Faults(drop_request=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """Probabilities from 0 to 1, times in seconds."""

    kind: Kind | None = None
    """None: both in turn."""
    workers: int | None = None
    """How many come and go; None: 2 to 4."""
    takeovers: int = 40
    """After so many the faults stop, and what is left is checked."""
    longest: float = 300.0
    """The same, if there are not so many by then."""

    bad_weather: float = 0.4
    fault: float = 0.1
    """Of each kind, at one request, in bad weather."""
    frozen_store: float = 0.03

    life: float = 1.2
    """How long a worker works on the call, on average."""
    idle: float = 0.3
    """Before the next one comes."""
    pause: float = 0.08
    """Between two records, on average."""

    crash: float = 0.5
    """How a life ends; else it is closed."""
    fuse: float = 0.35
    """Dies between two writes."""
    longest_fuse: int = 40
    stop: float = 0.08
    """Stands still for about a TTL, and goes on."""
    another: float = 0.3
    """The same process takes the call again, as another writer."""
    steal: float = 0.08
    leave: float = 0.05
    evict: float = 0.02
    """Between two records: the engine forgets the call, which 256 others push out."""
    skew: float = 1.0
    """Of a wall clock, at most, either way."""
    wrong_clock: float = 0.04
    """A wall clock that is an hour off from the start."""
    jump: float = 0.02
    """Of a life: its wall clock jumps an hour."""
    orphan: float = 0.1
    """A dead process's lock is held by its child, for ever."""

    spool: float = 0.5
    """A world whose workers have spools, on one or two machines."""
    outage: float = 0.1
    """The store is out of a worker's reach for a while: from its start, or in mid-call."""
    longest_outage: float = 4.0
    full_disk: float = 0.1
    """A machine's disk is full, until the weather changes."""
    drainer: float = 0.3
    """Each second: a process of one of the machines drains its spool, or two do at once."""

    new_room: float = 0.08
    no_room: float = 0.1
    """A worker that names no room."""
    old_room: float = 0.02
    """A worker that comes to the room before this one, which may be erased by now."""
    ended: float = 0.05
    erase: float = 0.05
    """Each second."""
    erase_fuse: float = 0.4
    hasty: float = 0.1
    """A writer that does not wait for its acknowledgements."""
    breaks: float = 0.15
    """Each second: a watcher breaks the lease of a holder that it found frozen, or thinks so."""
    break_fuse: float = 0.3
    outputs: float = 0.1
    """A worker that keeps outputs beside the chain."""
    eager: float = 0.02
    """A worker that writes snapshots of what is not acknowledged yet: readers must see it."""

    def faults(self) -> Faults:
        return Faults(
            drop_request=self.fault,
            late_request=self.fault,
            drop_answer=self.fault,
            duplicate=self.fault,
            delay=1.0,
            longest_delay=0.05,
        )


def spooling(settings: Settings, spool_call_bytes: int) -> Settings:
    """Return the same for a world with spools."""
    return replace(
        settings,
        spool_after=0.3,
        spool_call_bytes=spool_call_bytes,
        drain_interval=1.0,
        outbox_records=40,
    )


def settings(retained_chars: int) -> Settings:
    """Return what makes a life short: a TTL of 2 s, small batches, a snapshot every few entries."""
    return Settings(
        lease_ttl=2.0,
        partial_interval=0.3,
        rejoin_window=3.0,
        resume_window=30.0,
        briefing_tokens=100,
        retained_chars=retained_chars,
        snapshot_entries=6,
        batch_records=3,
        follow_interval=0.3,
        retry_last=0.4,
        pulse_interval=0.4,
        flush_wait=1.0,
    )
