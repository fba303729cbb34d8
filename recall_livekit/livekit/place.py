"""Where this worker is: the room, its sid and age, and the caller, as LiveKit's job tells it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from livekit.agents import JobContext, get_job_context

from ..rooms.orders import Orders, read_orders

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """What is known before the room is connected. All of it is None or empty outside a job."""

    job: JobContext | None = None
    room_sid: str | None = None
    caller: str | None = None
    agent_name: str | None = None
    room_created_at: float | None = None
    orders: Orders = field(default_factory=Orders)
    """Why this agent was dispatched, as its dispatch says."""

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
            orders=read_orders(job.job.attributes, job.job.metadata),
        )

    def had_agent(self, room_age: float) -> bool:
        """Whether an agent was in this room before, as far as one can tell without records."""
        old = self.room_created_at is not None and time.time() - self.room_created_at > room_age
        return self.orders.resume or self.orders.standby is not None or old
