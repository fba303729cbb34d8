"""How a session ended, and so what the next worker may do with the call.

LiveKit's close event says little: shutting down, eviction and a drained worker look the same. So
the public ways to end a call are marked on the instance, and the room says why it disconnected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession, CloseEvent, CloseReason, JobContext

from ..models import Outcome

__all__ = ["Closing"]

_ROOM_GONE = (rtc.DisconnectReason.ROOM_DELETED, rtc.DisconnectReason.ROOM_CLOSED)


class Closing:
    """Watches one session and its room, and names the outcome when it closes."""

    def __init__(self, session: AgentSession[Any], job: JobContext | None) -> None:
        """Watch from now on."""
        self._ended_by_application = False
        self._left_room: int | None = None
        self.shutdown_job: Callable[..., None] | None = None
        session.shutdown = self._marking(session.shutdown)  # type: ignore[method-assign]
        if job is not None:
            self.shutdown_job = job.shutdown
            job.shutdown = self._marking(job.shutdown)  # type: ignore[method-assign]
            job.room.on("disconnected", self._disconnected)
            job.room.on("participant_disconnected", self._participant_gone)

    def outcome(self, event: CloseEvent) -> Outcome:
        """Return what the close means for the call."""
        if self._ended_by_application or self._left_room in _ROOM_GONE:
            return "ended"
        if event.reason is CloseReason.TASK_COMPLETED:
            return "ended"
        if event.reason is CloseReason.PARTICIPANT_DISCONNECTED:
            return "left"
        return "handover"

    def _marking(self, end: Callable[..., None]) -> Callable[..., None]:
        @wraps(end)
        def marked(*args: Any, **kwargs: Any) -> None:
            self._ended_by_application = True
            end(*args, **kwargs)

        return marked

    def _participant_gone(self, participant: rtc.RemoteParticipant) -> None:
        """A deleted room takes its callers out first; the session may close on that alone."""
        if participant.disconnect_reason in _ROOM_GONE:
            self._left_room = participant.disconnect_reason

    def _disconnected(self, reason: object = None) -> None:
        self._left_room = reason if isinstance(reason, int) else None
