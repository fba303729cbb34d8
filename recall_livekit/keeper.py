"""What this worker may do on a call: it reads, waits or acquires, holds, and learns of a loss."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from .checks import storable_name
from .doubt import ASK_EVERY, Doubt
from .engine.liveness import Liveness
from .engine.requests import Acquire, Grant, Reading
from .engine.runs import Origin
from .errors import Erased, Fenced, Held, StoreError
from .models import Briefing
from .seams import Clock
from .settings import Settings
from .standing import CallState, Giving, IfHeld, IfLeaseLost, Standing
from .transport import Transport

__all__ = ["LeaseKeeper", "WhoCalls"]

logger = logging.getLogger("recall_livekit")

WhoCalls = Callable[[Origin], Awaitable[str | None]]
"""Says who calls, of the caller of an earlier room and whoever is here; it must not raise."""
CALLER_SECONDS = 1.0
"""How long the caller of a new room may take to be there before it is taken for another call.
Nobody waits for it longer than `seed_wait`."""


class LeaseKeeper(Standing):
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
        super().__init__(clock, settings, if_lease_lost)
        self.reading: Reading | None = None
        self.first_read: int | None = None
        self.briefing: Briefing | None = None
        self.creating = anyio.Lock()
        self._transport = transport
        self._call_id = call_id
        self._origin = origin
        self._agent_name = agent_name
        self._if_held: IfHeld = if_held
        self._locks: list[str] = []
        self._next_lock: str | None = None
        self._in_doubt: Acquire | None = None
        self._asked = 0.0
        self._silence: tuple[float, float] | None = None
        self.doubt = Doubt(clock)
        self.is_wanted: Callable[[Reading], Awaitable[bool]] | None = None
        self.who_calls: WhoCalls | None = None
        self.waits_for_another_room = False
        """Whether this worker waits for a call that was begun in another room, by the same caller:
        after a redial, or a room that was closed and used again."""

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
        try:
            await self._keep()
        finally:
            self.doubt.forget()
        if self.lost == "erased":
            await self._finish_erasure()  # who meets one unfinished finishes it (rule 13)

    async def _keep(self) -> None:
        reading = await self.read()
        steal = self._if_held == "steal"
        while True:
            if not steal and await self._is_held(reading):
                await self._stand_by(reading)
                if await self._is_over():
                    return
            if not await self._wants(self.reading or reading):
                return
            grant = await self._acquire(steal)
            steal = False
            if grant is None:
                await self._clock.sleep(self._settings.retry_first)  # never in a tight circle
            else:
                await self._hold(grant)
            if self.is_final:
                return
            reading = await self.read()
            if self.lost and await self._is_over():
                return

    def abandon(self) -> None:
        """Never take the call again."""
        self.abandoned = True
        self._tell()

    async def leave(self) -> None:
        """Give the signs of life back: waiters are woken."""
        for name in [*self._locks, self._next_lock]:
            await self._transport.let_go_lock(name)
        self._locks.clear()

    async def read(self) -> Reading:
        """Read the call, for as long as it takes, and tell whoever waits for it."""
        reading = await self._read()
        if self.first_read is None and await self._learns_caller(reading):
            reading = await self._read()
        if self.first_read is None:
            self.first_read = reading.position  # what it knows may be from there (rule 12)
        self.reading, self.briefing = reading, reading.briefing
        self._measure(reading.silence)
        if self.lost is None:
            erased = reading.erased_at >= self.first_read
            self.epoch, self.run_number = reading.epoch, 0 if erased else reading.run
        self._tell()
        return reading

    def _measure(self, silence: float | None) -> None:
        """Remember what the records say of the silence, and when on this worker's own clock."""
        if silence is not None:
            self._silence = (silence, self._clock.monotonic())

    @property
    def silence(self) -> float | None:
        """For how many seconds nobody has been there for the caller; None if it is not known."""
        if self._silence is None:
            return None
        seconds, told_at = self._silence
        return seconds + self._clock.monotonic() - told_at

    async def _read(self) -> Reading:
        return await self._retry(lambda: self._transport.read(self._call_id, self._origin))

    async def _learns_caller(self, reading: Reading) -> bool:
        """Where only the caller tells whether a call of another room goes on here: ask who it
        is, and wait a moment for the answer. One that a live worker still has there is not
        continued here: its room was closed, or it is somebody else's."""
        lives = reading.liveness is Liveness.LIVE
        unclear = reading.run == 0 and reading.previous is not None and not lives
        if not unclear or self._origin.caller is not None or self.who_calls is None:
            return False
        caller: str | None = None
        with anyio.move_on_after(CALLER_SECONDS):
            caller = storable_name(await self.who_calls(reading.previous or self._origin))
        self._origin = self._origin.model_copy(update={"caller": caller})
        return caller is not None

    @property
    def is_final(self) -> bool:
        """Whether the call was lost, and this worker is not to have it again."""
        if self.lost in ("erased", "over", "handed over"):
            return True
        return self.lost is not None and (self.abandoned or self.if_lease_lost != "standby")

    async def _is_held(self, reading: Reading) -> bool:
        if reading.run == 0 or reading.holder == self.writer:
            return False
        return await self.doubt.lives(reading.liveness)

    async def _wants(self, reading: Reading) -> bool:
        """Whether the call, which nobody has, is to be taken; if not it is over for this worker."""
        if self.is_wanted is None or await self.is_wanted(reading):
            return True
        self._lose("over")
        return False

    async def _stand_by(self, reading: Reading) -> None:
        if self._if_held == "leave" and self.lost is None:
            raise Held(reading.holder or "?", reading.epoch)
        self.waits_for_another_room = reading.previous is not None
        self.become(CallState.STANDBY)
        self.doubt.forget()  # what was said before there was a doubt answers none
        while True:
            liveness = await self._retry(
                lambda: self._transport.wait_free(self._call_id, doubt=self.doubt.begin)
            )
            if not await self.doubt.lives(liveness):
                return
            await self._wait_surer()

    async def _wait_surer(self) -> None:
        """Somebody lives whom the records have lost sight of: return when they say something
        else, or when it is time to ask again."""
        before = await self.read()
        with anyio.move_on_after(ASK_EVERY):
            while True:
                await self._clock.sleep(self._settings.follow_interval)
                now = await self.read()
                if (now.epoch, now.liveness) != (before.epoch, before.liveness):
                    return

    async def _is_over(self) -> bool:
        """Whether the call that this worker waited for has ended, or its room has another one.

        A room tells calls apart; without one the call id is used again for the next. Who waits in
        a room of its own begins the next one there.
        """
        if self._origin.room_sid is None:
            return False
        reading = await self.read()
        begins = self.waits_for_another_room and self.lost is None and not reading.erased
        if reading.run != 0 or begins:
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
        self._measure(grant.silence)
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
                if self._giving is not None:
                    deadline = await self._give(self._giving)
                else:
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
        self.feel()
        asked = self._clock.monotonic()
        try:
            if asked < deadline:
                await self._transport.renew(self._call_id, self.writer, self.epoch)
            if self._clock.monotonic() >= deadline:
                return await self._renew_by_lease()
        except Fenced:
            self._lose_to_another()
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
        if self.suspect and await self._was_judged():
            self._lose("frozen")
            return None
        try:
            self._in_doubt = self._in_doubt or self.request(lock=await self._new_lock())
            grant = await self._create(self._in_doubt)
            await self._drop_old_locks()
        except (Held, Erased) as error:
            if isinstance(error, Erased):
                self._lose("erased")
            else:
                self._lose_to_another()
            return None
        self._answered()
        self._take(grant)
        return self._asked + self._settings.lease_ttl

    async def _was_judged(self) -> bool:
        """Whether somebody closed this worker's epoch while it stood still, and nobody has the
        call yet: another was called for, and this one is not to come between."""
        now = await self._transport.read(self._call_id, self._origin)
        return now.epoch > self.epoch and now.holder != self.writer and not now.erased

    # --- handing over -------------------------------------------------------------------------

    async def hand_over(self, seconds: float) -> bool:
        """Release, and return whether another took the call within `seconds`; else it is held
        again. It must be written out before (rule 8)."""
        self._giving = giving = Giving(seconds)
        self._tell()
        self._wake.set()
        try:
            while self._giving is giving and self.state is CallState.HOLDING:
                await self.wait_change()
        finally:
            if self._giving is giving and not giving.begun:
                self._giving = None  # whoever asked waits no more
        return self.lost is not None

    async def _give(self, giving: Giving) -> float | None:
        """Release and look who comes; return the deadline of the lease that is taken again, or
        None if another has the call."""
        giving.begun = True
        try:
            async with self.creating:  # nothing is written under an epoch that is given away
                taken = await self._released(giving) and await self._is_taken(giving)
        except StoreError as error:
            self._note(error)
            taken = False
        try:
            if not taken:
                return await self._take_back()
            self._lose_to_another()
            return None
        finally:
            self._giving = None
            self._tell()

    async def _take_back(self) -> float | None:
        """Hold the call again. Where the records do not say whether another took it, the room
        does: this worker is not heard while an agent lives there."""
        self.doubt.forget()  # what was said before there was a doubt answers none
        while True:
            deadline = await self._renew(deadline=0.0)
            unanswered = deadline == 0.0
            if not unanswered or not await self.doubt.lives(Liveness.BROKEN):
                return deadline
            await self._clock.sleep(self._settings.follow_interval)

    async def _released(self, giving: Giving) -> bool:
        with anyio.move_on_after(giving.seconds):
            await self._transport.release(self._call_id, self.writer, self.epoch, "handover")
            for name in [*self._locks]:  # who waits looks at the records only now and then
                await self._transport.let_go_lock(name)
            return True
        return False

    async def _is_taken(self, giving: Giving) -> bool:
        with anyio.move_on_after(giving.seconds):
            while True:
                now = await self._transport.read(self._call_id, self._origin)
                if now.epoch > self.epoch and now.holder is not None:
                    return True
                await self._clock.sleep(self._settings.watch_interval)
        return False

    def _lose_to_another(self) -> None:
        self.feel()
        given = self._giving is not None and self._giving.begun
        self._lose("handed over" if given else "frozen" if self.suspect else "taken over")

    def _lose(self, reason: str) -> None:
        self.lost, self.suspect, self._in_doubt = reason, False, None
        logger.warning("this worker lost its call: %s; it is read-only from here", reason)
        self.become(CallState.READ_ONLY)
