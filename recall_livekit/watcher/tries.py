"""How often a call may have a new agent: one that kills each agent it gets is given up."""

from __future__ import annotations

import math
from typing import Literal

from .settings import WatcherSettings

__all__ = ["Backoff", "Next", "Tries"]

Next = Literal["agent", "fallback", "nobody"]


class Backoff:
    """Pauses that grow. Times are monotonic seconds."""

    def __init__(self, first: float, last: float, *, forget: float = math.inf) -> None:
        """Begin with a pause of `first`, and double it up to `last`; begin anew when nothing
        failed for `forget` seconds after a pause."""
        self._first = first
        self._last = last
        self._forget = forget
        self._pause = 0.0
        self._until = 0.0

    def failed(self, now: float) -> None:
        """Pause from `now` on, longer than the last time."""
        if now - self._until > self._forget:
            self._pause = 0.0
        self._pause = min(2 * self._pause or self._first, self._last)
        self._until = now + self._pause

    def reset(self) -> None:
        """Pause no more."""
        self._pause = self._until = 0.0

    def left(self, now: float) -> float:
        """Return for how many seconds to pause still."""
        return max(0.0, self._until - now)


class Tries:
    """The agents of one room that died, one soon after the other. Times are monotonic seconds."""

    def __init__(self, settings: WatcherSettings, *, has_fallback: bool = False) -> None:
        """Know of none."""
        self.deaths = 0
        self._settings = settings
        self._fallback_left = has_fallback
        self._lives_since: float | None = None
        self._deaths_pause = Backoff(settings.pause_first, settings.pause_last)
        self._drops_pause = Backoff(settings.retry_first, settings.retry_last)

    def lives(self, now: float) -> None:
        """An agent is there."""
        if self._lives_since is None:
            self._lives_since = now
            self._drops_pause.reset()
        if now - self._lives_since >= self._settings.lived_well:
            self.forgive()

    def gone(self, now: float, *, excused: bool) -> bool:
        """No agent is there; return whether one was, which has died now.

        `excused`: it went because its caller did, who is back.
        """
        if self._lives_since is None:
            return False
        self.lives(now)
        came, self._lives_since = self._lives_since, None
        if excused:
            self.forgive()
        else:
            self._died(came)
        return True

    def died_before(self, agents: int, *, fallback_used: bool) -> None:
        """Another watcher saw so many die, before this one came to the room."""
        self.deaths = max(self.deaths, agents)
        self._fallback_left = self._fallback_left and not fallback_used

    def dropped(self, now: float) -> None:
        """A dispatch brought nobody."""
        self._drops_pause.failed(now)

    def fallback_came(self) -> None:
        """The fallback agent is there: there is no second one."""
        self._fallback_left = False

    @property
    def next(self) -> Next:
        """Who is to be dispatched."""
        if self.deaths < self._settings.give_up_after:
            return "agent"
        return "fallback" if self._fallback_left else "nobody"

    def pause(self, now: float) -> float:
        """Return for how many seconds nobody is to be dispatched yet."""
        return max(self._deaths_pause.left(now), self._drops_pause.left(now))

    def _died(self, came: float) -> None:
        """The pause begins when the dead one came: who lived longer is replaced at once. So is
        the first, and so is the last, by the fallback: the caller waits."""
        self.deaths += 1
        if self.next != "agent":
            self._deaths_pause.reset()
        elif self.deaths > 1:
            self._deaths_pause.failed(came)

    def forgive(self) -> None:
        """Count anew: what killed them is over, or gone with the caller."""
        self.deaths = 0
        self._deaths_pause.reset()
