"""How a live call stands on this worker, and whether this worker itself stands still."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

import anyio

from .errors import StoreError
from .seams import Clock
from .settings import Settings

__all__ = ["CallState", "Giving", "IfHeld", "IfLeaseLost", "Standing"]

logger = logging.getLogger("recall_livekit")

IfHeld = Literal["standby", "steal", "leave"]
IfLeaseLost = Literal["standby", "leave", "speak"]
_T = TypeVar("_T")


class CallState(Enum):
    """Where a live call stands on this worker."""

    READING = "reading"
    ACQUIRING = "acquiring"
    HOLDING = "holding"
    STANDBY = "standby"
    READ_ONLY = "read_only"
    CLOSED = "closed"


@dataclass(slots=True)
class Giving:
    """A handover that was asked for: the call is free for `seconds`."""

    seconds: float
    begun: bool = False


class Standing:
    """What can be seen of one writer on one call; `LeaseKeeper` is what moves it."""

    def __init__(self, clock: Clock, settings: Settings, if_lease_lost: IfLeaseLost) -> None:
        """Know nothing yet."""
        self.writer = clock.new_id()
        self.state = CallState.READING
        self.epoch = 0
        self.run_number = 0
        self.lost: str | None = None
        self.error: StoreError | None = None
        self.suspect = False
        """Whether this worker stood still and has not looked at its lease since."""
        self.abandoned = False
        """Whether this worker never takes the call again once it lost it."""
        self.if_lease_lost: IfLeaseLost = if_lease_lost
        self._clock = clock
        self._settings = settings
        self._giving: Giving | None = None
        self._beat: float | None = None
        self._wake = anyio.Event()
        self._changed = anyio.Event()
        self._reached = anyio.Event()
        self._listeners: list[Callable[[CallState], None]] = []

    # --- looking ------------------------------------------------------------------------------

    @property
    def may_speak(self) -> bool:
        """Whether a voice of this worker may be heard: two must not talk to one caller."""
        if self.suspect or self._giving is not None:
            return False
        if self.state in (CallState.STANDBY, CallState.READ_ONLY):
            if self.lost in (None, "frozen", "handed over"):
                return False
            return self.lost == "erased" or self.if_lease_lost == "speak"
        return True

    @property
    def giving(self) -> bool:
        """Whether the call is being handed over."""
        return self._giving is not None

    def subscribe(self, listener: Callable[[CallState], None]) -> None:
        """Call `listener` with each new state."""
        self._listeners.append(listener)

    async def wait_change(self) -> None:
        """Return at the next change of state or of what was read."""
        await self._changed.wait()

    def become(self, state: CallState) -> None:
        """Enter a state and tell everybody who listens."""
        if state is self.state:
            return
        logger.debug("call %s: %s -> %s", self.writer, self.state.value, state.value)
        self.state = state
        self._tell()
        for listener in self._listeners:
            try:
                listener(state)
            except Exception:
                logger.exception("a listener of the call failed; the call goes on")

    def check_now(self) -> None:
        """Look at the lease at once, because something says that it may be lost."""
        self._wake.set()

    # --- the pulse ----------------------------------------------------------------------------

    async def pulse(self) -> None:
        """Notice that this process was frozen, and be silent until the lease was looked at."""
        self.feel()
        while True:
            await self._clock.sleep(self._settings.pulse_interval)
            self.feel()

    def feel(self) -> None:
        """Take the pulse now: who wakes from a standstill may come here before the ticker does."""
        now = self._clock.monotonic()
        still, self._beat = now - (now if self._beat is None else self._beat), now
        if still > self._settings.pulse_gap and self.state is CallState.HOLDING:
            logger.warning("this worker stood still for %.1f s: checking the lease", still)
            self.suspect = True
            self._tell()
            self._wake.set()

    def trust(self) -> None:
        """The lease was looked at, or cannot be: a caller is not left in silence for that."""
        if self.suspect:
            self.suspect = False
            self._tell()

    # --- the records as they can be reached ---------------------------------------------------

    async def _retry(self, ask: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until the store answers; the call goes on meanwhile."""
        pause = self._settings.retry_first
        while True:
            try:
                answer = await ask()
            except StoreError as error:
                self._note(error)
                await self._clock.sleep(self._clock.jitter(pause))
                pause = min(2 * pause, self._settings.retry_last)
            else:
                self._answered()
                return answer

    async def wait_reached(self) -> None:
        """Return when the records, which could not be reached, can be again."""
        await self._reached.wait()

    def _answered(self) -> None:
        if self.error is not None:
            self.error = None
            self._reached.set()
            self._reached = anyio.Event()

    def _note(self, error: StoreError) -> None:
        if self.error is None:
            logger.warning("the records cannot be reached (%s); the call goes on", error)
        self.error = error
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
