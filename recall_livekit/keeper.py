"""What this worker may do on a call: it reads, waits or acquires, holds, and learns of a loss."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Literal, TypeVar

import anyio

from .engine.liveness import Liveness
from .engine.requests import Acquire, Grant, Reading
from .engine.runs import Origin
from .errors import Erased, Fenced, Held, StoreError
from .models import Briefing
from .seams import Clock
from .settings import Settings
from .transport import Transport

__all__ = ["CallState", "IfHeld", "IfLeaseLost", "LeaseKeeper"]

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


class LeaseKeeper:
    """Keeps one writer's standing on one call. `run` is its life; the rest can be looked at.

    `creating` is held around every create of this writer, so that one is in flight (rule 2).
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: Settings,
        call_id: str,
        *,
        origin: Origin,
        agent_name: str | None,
        if_held: IfHeld,
        if_lease_lost: IfLeaseLost,
    ) -> None:
        """Know nothing yet."""
        self.writer = clock.new_id()
        self.state = CallState.READING
        self.reading: Reading | None = None
        self.first_read: int | None = None
        self.briefing: Briefing | None = None
        self.epoch = 0
        self.run_number = 0
        self.lost: str | None = None
        self.error: StoreError | None = None
        self.creating = anyio.Lock()
        self.if_lease_lost: IfLeaseLost = if_lease_lost
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._call_id = call_id
        self._origin = origin
        self._agent_name = agent_name
        self._if_held: IfHeld = if_held
        self._locks: list[str] = []
        self._next_lock: str | None = None
        self._in_doubt: Acquire | None = None
        self._asked = 0.0
        self.suspect = False
        self._wake = anyio.Event()
        self._changed = anyio.Event()
        self._reached = anyio.Event()
        self._listeners: list[Callable[[CallState], None]] = []

    # --- looking ------------------------------------------------------------------------------

    @property
    def may_speak(self) -> bool:
        """Whether a voice of this worker may be heard: two must not talk to one caller."""
        if self.suspect:
            return False
        if self.state in (CallState.STANDBY, CallState.READ_ONLY):
            alone = self.lost == "erased"
            return alone or (self.lost is not None and self.if_lease_lost == "speak")
        return True

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

    def request(self, *, steal: bool = False, lock: str | None = None) -> Acquire:
        """Return a new attempt's request."""
        return Acquire(
            writer=self.writer,
            attempt=self._clock.new_id(),
            ttl=self._settings.lease_ttl,
            origin=self._origin,
            agent_name=self._agent_name,
            lock=lock,
            steal=steal,
            read_position=self.first_read,
        )

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read, then hold the call for as long as it can be had.

        Raises:
            Held: A live holder has it and `if_held="leave"`.
        """
        await self._keep()
        if self.lost == "erased":
            await self._finish_erasure()  # who meets one unfinished finishes it (rule 13)

    async def _keep(self) -> None:
        reading = await self.read()
        steal = self._if_held == "steal"
        while True:
            if not steal and self._is_held(reading):
                await self._stand_by(reading)
                if await self._is_over():
                    return
            grant = await self._acquire(steal)
            steal = False
            if grant is None:
                await self._clock.sleep(self._settings.retry_first)  # never in a tight circle
            else:
                await self._hold(grant)
            if self.lost == "erased" or (self.lost and self.if_lease_lost != "standby"):
                return
            reading = await self.read()
            if self.lost and await self._is_over():
                return

    async def leave(self) -> None:
        """Give the signs of life back: waiters are woken."""
        for name in [*self._locks, self._next_lock]:
            await self._transport.let_go_lock(name)
        self._locks.clear()

    async def pulse(self) -> None:
        """Notice that this process was frozen, and be silent until the lease was looked at."""
        last = self._clock.monotonic()
        while True:
            await self._clock.sleep(self._settings.pulse_interval)
            now = self._clock.monotonic()
            if now - last > self._settings.pulse_gap and self.state is CallState.HOLDING:
                logger.warning("this worker stood still for %.1f s: checking the lease", now - last)
                self.suspect = True
                self._tell()
                self._wake.set()
            last = now

    async def read(self) -> Reading:
        """Read the call, for as long as it takes, and tell whoever waits for it."""
        reading = await self._retry(lambda: self._transport.read(self._call_id, self._origin))
        if self.first_read is None:
            self.first_read = reading.position  # what it knows may be from there (rule 12)
        self.reading, self.briefing = reading, reading.briefing
        if self.lost is None:
            erased = reading.erased_at >= self.first_read
            self.epoch, self.run_number = reading.epoch, 0 if erased else reading.run
        self._tell()
        return reading

    def _is_held(self, reading: Reading) -> bool:
        live = reading.liveness is Liveness.LIVE and reading.holder != self.writer
        return live and reading.run != 0

    async def _stand_by(self, reading: Reading) -> None:
        if self._if_held == "leave" and self.lost is None:
            raise Held(reading.holder or "?", reading.epoch)
        self.become(CallState.STANDBY)
        await self._retry(lambda: self._transport.wait_free(self._call_id))

    async def _is_over(self) -> bool:
        """Whether the call that this worker waited for has ended, or its room has another one.

        A room tells calls apart; without one the call id is used again for the next.
        """
        if self._origin.room_sid is None:
            return False
        reading = await self.read()
        if reading.run != 0:
            return False
        self._lose("erased" if reading.erased else "over")
        return True

    async def _acquire(self, steal: bool) -> Grant | None:
        """Return the lease, or None if another has it after all."""
        if self.state is CallState.READING:
            self.become(CallState.ACQUIRING)
        request = self.request(steal=steal, lock=await self._retry(self._new_lock))
        try:
            grant = await self._retry(lambda: self._create(request))
        except (Held, Fenced):
            return None
        except Erased:
            self._lose("erased")
            return None
        self._take(grant)
        return grant

    async def _create(self, request: Acquire) -> Grant:
        async with self.creating:
            self._asked = self._clock.monotonic()
            return await self._transport.acquire(self._call_id, request)

    async def _new_lock(self) -> str | None:
        """Take a lock under a new name: a name is never used twice (rule 10).

        The one before it is kept until the next grant: it may be in a lease whose answer was
        lost.
        """
        name = self._next_lock = self._next_lock or f"{self.writer}-{self._clock.new_id()}"
        if await self._transport.hold_lock(name) is None:
            return None
        self._next_lock = None
        self._locks.append(name)
        return name

    async def _drop_old_locks(self) -> None:
        while len(self._locks) > 1:
            await self._transport.let_go_lock(self._locks[0])
            self._locks.pop(0)

    def _take(self, grant: Grant) -> None:
        self.epoch, self.run_number = grant.epoch, grant.run
        self.briefing = grant.briefing
        self.lost, self.suspect, self._in_doubt = None, False, None
        self.become(CallState.HOLDING)

    # --- holding ------------------------------------------------------------------------------

    async def _hold(self, grant: Grant) -> None:
        """Renew every third of the TTL; return when another has the call."""
        await self._retry(self._drop_old_locks)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_lock)
            tasks.start_soon(self._finish_erasure)
            deadline: float | None = self._asked + self._settings.lease_ttl
            while deadline is not None:
                with anyio.move_on_after(self._until_next_renewal()):
                    await self._wake.wait()
                self._wake = anyio.Event()
                deadline = await self._renew(deadline)
            tasks.cancel_scope.cancel()

    def _until_next_renewal(self) -> float:
        """One that failed is tried again well before the lease lapses: others may wait for it."""
        ttl = self._settings.lease_ttl
        return ttl / 3 if self.error is None else self._clock.jitter(ttl / 12)

    async def _finish_erasure(self) -> None:
        """Carry out an erasure that somebody began and left: no caller waits for it."""
        await self._retry(lambda: self._transport.finish_erasure(self._call_id))

    async def _watch_lock(self) -> None:
        while True:
            try:
                lock = self._locks[-1] if self._locks else None
                await self._transport.stay(self._call_id, self.writer, self.epoch, lock)
                self._wake.set()
            except StoreError as error:
                self._note(error)
            await self._clock.sleep(self._settings.follow_interval)

    async def _renew(self, deadline: float) -> float | None:
        """Return the new deadline, or None if the lease is lost (rule 9)."""
        asked = self._clock.monotonic()
        try:
            if asked < deadline:
                await self._transport.renew(self._call_id, self.writer, self.epoch)
            if self._clock.monotonic() >= deadline:
                return await self._renew_by_lease()
        except Fenced:
            self._lose("frozen" if self.suspect else "taken over")
            return None
        except StoreError as error:
            self._note(error)
            self.trust()
            return deadline
        self._answered()
        self.trust()
        return asked + self._settings.lease_ttl

    async def _renew_by_lease(self) -> float | None:
        """A holder past its deadline takes the call anew, if nobody else did."""
        try:
            self._in_doubt = self._in_doubt or self.request(lock=await self._new_lock())
            grant = await self._create(self._in_doubt)
            await self._drop_old_locks()
        except (Held, Erased) as error:
            taken = "frozen" if self.suspect else "taken over"
            self._lose("erased" if isinstance(error, Erased) else taken)
            return None
        self._take(grant)
        return self._asked + self._settings.lease_ttl

    def trust(self) -> None:
        """The lease was looked at, or cannot be: a caller is not left in silence for that."""
        if self.suspect:
            self.suspect = False
            self._tell()

    def _lose(self, reason: str) -> None:
        self.lost, self.suspect, self._in_doubt = reason, False, None
        logger.warning("this worker lost its call: %s; it is read-only from here", reason)
        self.become(CallState.READ_ONLY)

    # --- inside -------------------------------------------------------------------------------

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
