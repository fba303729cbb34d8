"""Every number that somebody may want to turn, in one place, with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import InvalidSettings

__all__ = ["CHARS_A_BRIEFED_TOKEN", "Settings"]

CHARS_A_BRIEFED_TOKEN = 5
"""So much text must be retained for each token of a briefing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one worker behaves. Times in seconds.

    Raises:
        InvalidSettings: A value is outside its range.
    """

    lease_ttl: float = 6.0
    """How long a silent holder keeps its lease (2 s to 1 h); renewed every third of it."""

    seed_wait: float = 0.25
    """The longest a reply waits for us, once, from `on_enter` (invariant 1)."""

    action_wait: float = 0.5
    """The longest that an external tool waits for its beginning to be stored under the lease."""

    partial_interval: float = 0.25
    """Partials are written at most this often."""

    rejoin_window: float = 120.0
    """How long a caller who left, or who comes back with a new room, is the same call."""

    resume_window: float = 900.0
    """How old the last record or renewal may be for the same room to be the same call."""

    room_age: float = 15.0
    """Records unreadable: an older room is taken to have had an agent before."""

    briefing_tokens: int = 3000
    """The budget of a briefing (up to `retained_chars` / 5). Voice wants a short prompt."""

    retained_chars: int = 15_000
    """How much of the newest turns a fold keeps (each counts 50 more): what resuming costs."""

    snapshot_entries: int = 16
    """A snapshot is written after so many entries: the longest tail that a resume reads."""

    outbox_records: int = 20_000
    """Records waiting to be acknowledged; more are refused and counted. Before that superseded
    userdata and working states make room; the markers in their places do not count here."""

    outbox_bytes: int = 64 * 1024 * 1024
    """The same in characters of text."""

    batch_records: int = 256
    """The most records in one entry."""

    batch_bytes: int = 512 * 1024
    """The most text in one entry (one record may be larger alone)."""

    follow_interval: float = 0.25
    """How often a standby reads on."""

    watch_interval: float = 0.05
    """How often a waiter looks at a sign of life that cannot wake it."""

    disconnect_grace: float = 0.3
    """How long a holder whose stream to the server broke may take to come back."""

    spool_after: float = 0.5
    """A record that waits longer than this to be stored is written to the spool, on disk."""

    spool_bytes: int = 256 * 1024 * 1024
    """The most bytes in the spool's directory; beyond it records are kept in memory alone."""

    spool_call_bytes: int = 64 * 1024 * 1024
    """The most bytes in one call's spool file; the same."""

    drain_interval: float = 5.0
    """How often a process looks for spool files that nobody has any more."""

    drain_wait: float = 0.1
    """How long a new worker waits, before its first read, for what dead ones spooled here."""

    return_grace: float = 1.0
    """How long a holder may take to come back to a server that was away itself."""

    request_wait: float = 5.0
    """The longest that one request to a Recall server takes."""

    connect_wait: float = 2.0
    """The longest that connecting to a Recall server takes."""

    stream_silence: float = 3.0
    """A stream that says nothing for so long is opened anew (the server speaks every second)."""

    retry_first: float = 0.05
    """The first pause after a failed write; it doubles up to `retry_last`."""

    retry_last: float = 2.0
    """The longest pause between tries."""

    pulse_interval: float = 0.05
    """How often a worker looks at its own pulse."""

    pulse_gap: float = 0.7
    """A gap this long means that the worker was frozen: it looks at the lease before it speaks."""

    standby_hears: float = 10.0
    """How many of the caller's last seconds a standby in the room keeps, in memory."""

    open_wait: float = 5.0
    """How long a plain handle waits for the first read before it raises."""

    output_chars: int = 4000
    """A tool's result that is longer is kept beside the records; its record shows its beginning."""

    output_wait: float = 2.0
    """How long a text that is kept beside the records (`Call.keep_output`) may take."""

    flush_wait: float = 2.0
    """How long a closing call waits for its outbox."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidSettings(f"{field.name} must be a number above zero, not {value!r}")
        if not 2.0 <= self.lease_ttl <= 3600.0:
            raise InvalidSettings("lease_ttl must be from 2 seconds to 1 hour")
        if self.briefing_tokens * CHARS_A_BRIEFED_TOKEN > self.retained_chars:
            raise InvalidSettings("briefing_tokens must be at most a fifth of retained_chars")
