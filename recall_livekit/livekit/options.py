"""What an application chooses for its call, and the live session that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..client import Recall
from ..redaction import Redact
from ..standing import IfHeld, IfLeaseLost
from .bring_back import AgentFactory
from .place import Place
from .session import LiveSession
from .userdata import UserdataKeeper

__all__ = ["LiveOptions"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveOptions:
    """The same for `RecallAgent` and for `attach`; see there."""

    resume: str
    recall: Recall | None
    caller: str | None
    if_held: IfHeld
    if_lease_lost: IfLeaseLost
    redact: Redact | None
    userdata_type: type[object] | None
    shutdown_when_left: bool
    resume_agents: Mapping[str, AgentFactory]
    place: Place = field(default_factory=Place.here)

    def live(self) -> LiveSession:
        """Return this job's live session of the call, or begin one: it reads at once."""
        return LiveSession.of_job(self.resume, self.place.job) or self.open()

    def open(self) -> LiveSession:
        """Begin to read the call and to acquire it."""
        recall = self.recall or Recall.open()
        call = recall.resume(
            self.resume,
            room_sid=self.place.room_sid,
            caller=self.caller or self.place.caller,
            agent_name=self.place.agent_name,
            if_held=self.if_held,
            if_lease_lost=self.if_lease_lost,
            redact=self.redact,
        )
        return LiveSession(
            call,
            self.place,
            UserdataKeeper(self.userdata_type),
            recall=recall,
            owned=self.recall is None,
            shutdown_when_left=self.shutdown_when_left,
            resume_agents=self.resume_agents,
        )
