"""Where this worker is: the room, its sid and age, and the caller, as LiveKit's job tells it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from livekit.agents import JobContext, get_job_context

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """What is known before the room is connected. All of it is None or empty outside a job."""

    job: JobContext | None = None
    room_sid: str | None = None
    caller: str | None = None
    agent_name: str | None = None
    room_created_at: float | None = None
    resuming: bool = False
    """Whether the dispatch's metadata says that an agent was here before."""

    @classmethod
    def here(cls) -> Place:
        """Return the place of the current job; the room's sid is known without a connection."""
        job = get_job_context(required=False)
        if job is None:
            return cls()
        room, caller = job.job.room, job.job.participant
        return cls(
            job=job,
            room_sid=room.sid or None,
            caller=caller.identity or None,
            agent_name=job.job.agent_name or None,
            room_created_at=float(room.creation_time) or None,
            resuming=_resuming(job.job.metadata),
        )

    def had_agent(self, room_age: float) -> bool:
        """Whether an agent was in this room before, as far as one can tell without records."""
        old = self.room_created_at is not None and time.time() - self.room_created_at > room_age
        return self.resuming or old


def _resuming(metadata: str) -> bool:
    """A watcher dispatches with ``{"recall": {"resume": true}}`` in the job's metadata."""
    try:
        recall = json.loads(metadata or "{}").get("recall")
    except (ValueError, AttributeError):
        return False
    return isinstance(recall, dict) and recall.get("resume") is True
