"""What to do about a room, decided from what was seen of it: no request, no clock, no state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from ..engine.liveness import Liveness
from ..rooms.orders import Pulse
from .settings import WatcherSettings

__all__ = ["Act", "AgentStanding", "Claim", "Decision", "Seen", "judge", "standing_of"]

Claim = Literal["none", "served", "goes_on"]
"""Why a room must have an agent: it need not; the application says so; its call goes on."""

AgentStanding = Literal["speaks", "waits", "idle", "silent"]
"""What an agent is to its caller: the one who speaks or is about to; one who would take the call
if it were free; one who lives and does neither; one who did not answer."""


class Act(Enum):
    """What is to be done about a room."""

    NOTHING = "nothing"
    """All is well, or it is not ours."""

    CALL_OFF = "call off"
    """Nobody is there to be served: an agent that was just dispatched is not needed."""

    WAIT = "wait"
    """Somebody else is about to do what is needed."""

    ASK_AGAIN = "ask again"
    """The agent did not answer: it may be busy."""

    REPLACE = "replace"
    """The agent is frozen, dead or gone: throw it out, and free the call."""

    DISPATCH = "dispatch"
    """The room needs an agent, and nobody else brings one."""

    STANDBY = "standby"
    """The call has its agent, and needs somebody to stand by."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and after how many seconds to look again at the latest."""

    act: Act
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a room that is there. Times in seconds."""

    claim: Claim
    called: bool
    """Whether a caller is in the room."""
    liveness: Liveness = Liveness.FREE
    """Of the call's lease, by the records."""
    epoch: int = 0
    doubtful: bool = False
    """Whether a sign says of this lease that its holder may be gone."""
    speaking: tuple[str, ...] = ()
    """The agents that live."""
    silent: tuple[str, ...] = ()
    """The agents that did not answer; of those that were found dead before, none."""
    silences: int = 0
    """How often in a row these were asked in vain, the least of them."""
    settling: float = 0.0
    """For how long one of the silent may still be on its way in."""
    waiting: bool = False
    """Whether a standby would take the call."""
    lacks_standby: bool = False
    alone_for: float = 0.0
    """How long the caller has been without a live agent, at this epoch."""
    free_for: float = 0.0
    """For how long anybody could have taken the call meanwhile."""

    @property
    def held(self) -> bool:
        """Whether a lease is in the way of the next agent, or of a standby that doubts it."""
        return self.liveness not in (Liveness.FREE, Liveness.DEAD)


def standing_of(pulse: Pulse | None) -> AgentStanding:
    """Return what an agent is that answered so. One that is not ours speaks, if it lives."""
    if pulse is None:
        return "silent"
    if pulse.waits:
        return "waits"
    return "idle" if pulse.state == "closed" else "speaks"


def judge(seen: Seen, settings: WatcherSettings) -> Decision:
    """Return what to do about this room now, as far as the records and the room itself say."""
    if seen.claim == "none":
        return Decision(Act.NOTHING, settings.sweep_interval)
    if not seen.called:
        return Decision(Act.CALL_OFF, settings.look_interval)
    if seen.speaking:
        act = Act.STANDBY if seen.lacks_standby else Act.NOTHING
        return Decision(act, settings.ask_interval)
    if seen.silent:
        return _about_the_silent(seen)
    if seen.liveness is Liveness.LIVE and seen.alone_for < settings.absent_wait:
        return Decision(Act.WAIT, settings.absent_wait - seen.alone_for)
    if seen.held:
        return Decision(Act.REPLACE)
    return _about_the_free(seen, settings)


def _about_the_silent(seen: Seen) -> Decision:
    """One silence is enough if the records have lost the holder too; else it takes two."""
    if seen.settling > 0:
        return Decision(Act.WAIT, seen.settling)
    certain = seen.doubtful or seen.liveness not in (Liveness.LIVE, Liveness.FREE)
    if certain and seen.silences:
        return Decision(Act.REPLACE)
    return Decision(Act.REPLACE if seen.silences > 1 else Act.ASK_AGAIN)


def _about_the_free(seen: Seen, settings: WatcherSettings) -> Decision:
    waits = [0.0]
    if seen.waiting:
        waits.append(settings.standby_wait - seen.free_for)
    if seen.claim == "served":
        waits.append(settings.first_wait - seen.alone_for)
    longest = max(waits)
    if longest <= 0:
        return Decision(Act.DISPATCH)
    return Decision(Act.WAIT, min(longest, settings.ask_wait) if seen.waiting else longest)
