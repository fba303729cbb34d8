"""What a watcher remembers of one room from look to look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..rooms.orders import Pulse

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Member

__all__ = ["Known", "remember"]

REMEMBERED = 64
"""So many agents and dispatches of one room are remembered; later ones push out the first."""


@dataclass(slots=True)
class Known:
    """Times are monotonic seconds, but for what LiveKit says."""

    speaker: Member | None = None
    """The agent that was heard of last: the one to ask."""
    epoch: int = 0
    """The epoch that it holds, by its own word; 0 if it holds none."""
    spoke: Member | None = None
    """The agent that was heard of last, whether it is still there or not."""
    silences: dict[str, int] = field(default_factory=dict)
    """How often in a row an agent did not answer."""
    first_seen: dict[str, float] = field(default_factory=dict)
    corpses: dict[str, None] = field(default_factory=dict)
    """Agents that were found dead: their voices end by themselves."""
    zombies: dict[str, None] = field(default_factory=dict)
    """Agents that were thrown out: if they wake and come back, they go again."""
    haunted_until: float = 0.0
    """Until when such a one is likely to come back."""
    doubted: int = 0
    """The newest epoch of which a sign said that its holder may be gone."""
    alone_since: float | None = None
    alone_at: int = 0
    """The call's epoch then: whoever takes it has its time anew to come into the room."""
    free_since: float | None = None
    arrived: float = 0.0
    """When the callers came who are here, or were last: the first of them, Unix seconds."""
    left: bool = False
    """Whether the caller was away since an agent spoke."""
    spent: dict[str, None] = field(default_factory=dict)
    """Dispatches that brought their agent, or never will."""
    drops: int = 0
    """How many dispatches in a row brought nobody."""
    unmet: str | None = None
    """The dispatch whose agent has not met the caller yet."""
    ended: tuple[int, bool] | None = None
    """Whether this room had its call, as of a run of this number."""

    def heard(self, agent: Member, pulse: Pulse | None) -> None:
        """Note whether an agent answered."""
        if pulse is None:
            self.silences[agent.identity] = self.silences.get(agent.identity, 0) + 1
        else:
            self.silences.pop(agent.identity, None)

    def speaks(self, agent: Member, pulse: Pulse) -> None:
        """Note an agent of this call that lives; of several the one that holds it."""
        holds = pulse.state == "holding"
        another = self.speaker is not None and self.speaker.identity != agent.identity
        if holds or not another:
            self.speaker = self.spoke = agent
            self.epoch, self.left = pulse.epoch if holds else 0, False
        if holds and self.doubts(pulse.epoch):
            self.doubted = 0

    def doubts(self, epoch: int) -> bool:
        """Whether a sign says that the holder of this epoch may be gone."""
        return 0 < epoch <= self.doubted

    def is_out(self, identity: str) -> bool:
        """Whether this participant counts no more."""
        return identity in self.corpses or identity in self.zombies

    def bury(self, identity: str, *, zombie: bool) -> None:
        """Count it no more. A zombie may wake, a corpse cannot."""
        remember(self.zombies if zombie else self.corpses, identity, REMEMBERED)

    def spend(self, dispatch: str) -> None:
        """Expect nobody of this dispatch any more."""
        remember(self.spent, dispatch, REMEMBERED)

    def meets(self, agents: Sequence[Member], now: float, today: float) -> None:
        """Remember the agents that are there now, and no other's silences. Who joined before this
        watcher looked is not new: LiveKit says when, in Unix seconds, which it is `today`."""
        there = {agent.identity for agent in agents}
        if self.speaker is not None and self.speaker.identity not in there:
            self.speaker, self.epoch = None, 0
        came = {one.identity: now - max(0.0, today - one.joined_at) for one in agents}
        self.first_seen = {who: self.first_seen.get(who, came[who]) for who in there}
        self.silences = {who: count for who, count in self.silences.items() if who in there}

    def alone(self, now: float, *, epoch: int, free: bool) -> tuple[float, float]:
        """The caller is without an agent: return for how long at this epoch, and for how long of
        it all the call could be had."""
        if self.alone_since is None or self.alone_at != epoch:
            self.alone_since, self.alone_at = now, epoch
        if not free:
            self.free_since = None
        elif self.free_since is None:
            self.free_since = now
        free_for = 0.0 if self.free_since is None else now - self.free_since
        return now - self.alone_since, free_for

    def arrive(self, callers: Sequence[Member]) -> bool:
        """Whether all who call came after all who called before: the page was reloaded, say."""
        first = min((one.joined_at for one in callers), default=0.0)
        again = 0.0 < self.arrived < first
        self.arrived = max(self.arrived, first)
        return again

    def is_excused(self, callers: Sequence[Member]) -> bool:
        """Whether the last agent went because its caller did, who is back."""
        spoke = self.spoke
        later = spoke is not None and all(one.joined_at > spoke.joined_at for one in callers)
        return self.left or later

    def served(self) -> None:
        """The caller has an agent, or is not there."""
        self.alone_since = self.free_since = None


def remember(those: dict[str, None], one: str, most: int) -> bool:
    """Add one, which pushes out the first of more than `most`; return whether it was there."""
    known = one in those
    those[one] = None
    if len(those) > most:
        del those[next(iter(those))]
    return known
