"""A live call on this worker: ``reading -> acquiring -> holding -> read_only -> closed``.

The records are read at once; the lease is taken in the background; what is recorded streams to
the store from an ordered outbox. Nothing here waits for the store but what says so.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from types import TracebackType

import anyio

from .call_ids import check_call_id
from .checks import storable_name
from .doubt import SomebodyLives
from .engine.requests import Reading
from .engine.runs import Origin
from .errors import (
    Closed,
    Erased,
    Held,
    RecallError,
    StoreUnavailable,
)
from .keeper import LeaseKeeper, WhoCalls
from .models import (
    Outcome,
    Output,
)
from .open_calls import OpenCalls
from .outbox import Outbox, Tenure
from .outputs import Outputs
from .redaction import Redact, Redactor
from .seams import Clock
from .sender import Sender
from .settings import Settings
from .spool.spool import Spool
from .spool.spooler import Spooler
from .standing import CallState, IfHeld, IfLeaseLost
from .tool_calls import ToolCalls
from .transport import Transport

__all__ = ["Call", "CallState"]

logger = logging.getLogger("recall_livekit")


class Call(ToolCalls):
    """One call, on this worker, under one writer.

    Use it as an async context manager, which waits for the lease, or `start` it and go on at
    once, as a voice agent does.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: Settings,
        call_id: str,
        *,
        room_sid: str | None = None,
        caller: str | None = None,
        agent_name: str | None = None,
        if_held: IfHeld = "standby",
        if_lease_lost: IfLeaseLost = "standby",
        redact: Redact | None = None,
        spool: Spool | None = None,
    ) -> None:
        """See `Recall.resume`. What cannot be stored is written to `spool`, if there is one."""
        self.call_id = check_call_id(call_id)
        self.settings = settings
        self.outcome: Outcome | None = None
        self._transport = transport
        self._clock = clock
        self._redactor = Redactor(redact)
        self._outbox = Outbox(settings, redacts=self._redactor.redacts)
        room_sid, caller, agent_name = map(storable_name, (room_sid, caller, agent_name))
        self._keeper = LeaseKeeper(
            transport,
            clock,
            settings,
            call_id,
            origin=Origin(room_sid=room_sid, caller=caller),
            agent_name=agent_name,
            if_held=if_held,
            if_lease_lost=if_lease_lost,
        )
        self._sender = Sender(
            transport, clock, settings, call_id, self._keeper, self._outbox, self._redactor
        )
        self._outputs = Outputs(
            transport,
            clock,
            settings,
            call_id,
            self._keeper,
            self._redactor,
            self._record_output,
        )
        self._spool = spool
        self._spooler: Spooler | None = None
        if spool is not None:
            header = spool.header(call_id, self._keeper.writer, room_sid, caller)
            self._spooler = Spooler(spool, header, self._keeper, self._outbox)
        self._open_calls = OpenCalls(self._keeper.writer)
        self._orphans_drained = anyio.Event()
        self._keeper.subscribe(self._lost_call)
        self._closing = anyio.Event()
        self._task: asyncio.Task[None] | None = None
        self._dying: list[Callable[[], Awaitable[object]]] = []
        self._refusal: Held | None = None

    # --- what can be seen -----------------------------------------------------------------------

    @property
    def state(self) -> CallState:
        """Where the call stands on this worker."""
        return self._keeper.state

    @property
    def epoch(self) -> int:
        """The epoch this worker holds, held last, or read."""
        return self._keeper.epoch

    @property
    def writer(self) -> str:
        """This incarnation's name; it is never used again."""
        return self._keeper.writer

    @property
    def known(self) -> bool:
        """Whether the records were read."""
        return self._keeper.briefing is not None

    @property
    def silence(self) -> float | None:
        """For how many seconds nobody has been there for the caller: since the last sign of life
        of whoever had the call before, until now. None if it is not known.

        The records say it by their own clock, a server's or this machine's, when they are read and
        when the lease is taken; from then on it is counted on this worker's. So no clock that is
        wrong, the dead worker's or this one's, makes it negative, or longer than since the last
        renewal.
        """
        return self._keeper.silence

    @property
    def waits_for_another_room(self) -> bool:
        """Whether a live worker has the call in another room, which the same caller has left for
        this one: if it ends there, the next one begins here."""
        return self._keeper.waits_for_another_room

    @property
    def lag(self) -> int:
        """How many records are not durable yet."""
        return self._outbox.lag

    @property
    def spooled(self) -> int:
        """How many of these are on this machine's disk: they survive this process."""
        return self._spooler.spooled if self._spooler else 0

    @property
    def refused(self) -> int:
        """How many records could not be kept; each was logged or raised, and is counted here."""
        return self._outbox.refused

    @property
    def unkept(self) -> int:
        """How many outputs could not be kept; each was raised, and is counted here."""
        return self._outputs.unkept

    @property
    def withheld(self) -> int:
        """How many texts were withheld because `redact` failed."""
        return self._redactor.withheld

    @property
    def lost(self) -> str | None:
        """Why this worker does not have the call: "taken over"; "frozen", taken over while it
        stood still; "handed over"; "erased"; "over", ended or followed by another call while it
        waited."""
        return self._keeper.lost

    @property
    def if_lease_lost(self) -> IfLeaseLost:
        """What this worker does when another takes the call."""
        return self._keeper.if_lease_lost

    @property
    def refusal(self) -> Held | None:
        """Who had the call when this worker left it at once (`if_held="leave"`)."""
        return self._refusal

    @property
    def may_speak(self) -> bool:
        """Whether a voice of this worker may be heard now."""
        return self._keeper.may_speak

    def subscribe(self, listener: Callable[[CallState], None]) -> None:
        """Call `listener` with each new state, at once and on the event loop."""
        self._keeper.subscribe(listener)

    # --- outputs --------------------------------------------------------------------------------

    async def keep_output(self, name: str, text: str) -> Output:
        """Keep a long text beside the records, as a tool's result that no prompt has room for, and
        record where it is. `ref` of what is returned fetches it, on any worker.

        It waits until the text is durable, at most `Settings.output_wait`: await it where nobody
        waits for you. `redact` applies. Text beyond 1 MiB (in UTF-8) is cut there and says so.

        Args:
            name: What it is, in a few words: the briefing tells it.
            text: Kept whole; `Output.preview` has its beginning.

        Raises:
            StoreUnavailable: It was not kept within `output_wait`: use what you have of it.
            ReadOnly, OutboxFull, Closed: As in `record_turn`.
            Erased: This call was erased.
            InvalidRecord: It is no str.
        """
        self._check_writable()
        return await self._outputs.keep(name, text)

    async def fetch_output(self, ref: str) -> str:
        """Return the whole text that was kept under this ref, by whatever worker.

        One that the records tell of and that is not there is recorded as missing, so that the next
        briefing says so.

        Raises:
            OutputMissing: Nothing is kept under it, or no more: go on without it.
            StoreError: It cannot be read now.
        """
        return await self._outputs.fetch(ref)

    # --- waiting --------------------------------------------------------------------------------

    async def flush(self, seconds: float = math.inf) -> bool:
        """Wait until everything queued, and every output that is being kept, is durable.

        False if it is not after `seconds`, or never will be: closed, erased or refused.
        """
        refused = self._outbox.refused
        with anyio.move_on_after(seconds):
            await self._outputs.idle()
            while self._outbox.lag and self.state is not CallState.CLOSED:
                await self._outbox.wait_change()
        return not self._outbox.lag and self._outbox.refused == refused

    async def ready(self, seconds: float = math.inf) -> bool:
        """Wait until the records were read; False if they were not after `seconds`."""
        with anyio.move_on_after(seconds):
            while not self.known and self.state is not CallState.CLOSED:
                await self._keeper.wait_change()
        return self.known

    async def answered(self, seconds: float = math.inf) -> bool:
        """Wait until it is known who has the call; False if it is not after `seconds`."""
        return await self._wait_until_not(seconds, CallState.READING, CallState.ACQUIRING)

    async def settled(self) -> bool:
        """Whether this worker may be heard; a worker that stood still looks at the lease first."""
        self._keeper.feel()
        if self._keeper.suspect:
            with anyio.move_on_after(self.settings.seed_wait):
                while self._keeper.suspect:
                    await self._keeper.wait_change()
            self._keeper.trust()
        return self.may_speak

    async def holding(self, seconds: float = math.inf) -> bool:
        """Wait until this worker holds the call; False if it does not after `seconds`."""
        with anyio.move_on_after(seconds):
            while (
                self.state not in (CallState.HOLDING, CallState.CLOSED)
                and not self._keeper.is_final
            ):
                await self._keeper.wait_change()
        return self.state is CallState.HOLDING

    async def _wait_until_not(self, seconds: float, *states: CallState) -> bool:
        with anyio.move_on_after(seconds):
            while self.state in states:
                await self._keeper.wait_change()
        return self.state not in states

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read and to acquire, in the background. Needs a running event loop."""
        asyncio.get_running_loop()  # says so before there is anything to clean up
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"recall call {self.writer}")
            self._task.add_done_callback(self._ended)
            if self._spool is not None:
                self._spool.start()

    def ask_first(self, somebody_lives: SomebodyLives) -> None:
        """Ask before the call is taken on evidence that is not certain (see `doubt`): a holder
        that is only cut off from the records keeps it. To be said before `start`."""
        self._keeper.doubt.somebody_lives = somebody_lives

    def ask_caller(self, who_calls: WhoCalls) -> None:
        """Ask who calls, if nobody said so and only that tells whether a call of another room
        goes on here. To be said before `start`; it must not raise."""
        self._keeper.who_calls = who_calls

    def take_only_if(self, is_wanted: Callable[[Reading], Awaitable[bool]] | None) -> None:
        """Ask, with what was read last, right before the lease is taken. If it is not wanted,
        nothing is written, and the call is over for this worker (`lost` is "over"). None: always.
        It may wait; it must not raise."""
        self._keeper.is_wanted = is_wanted

    def abandon(self) -> None:
        """Once it is lost, or now that it is: never take this call again on this worker."""
        self._keeper.abandon()

    async def hand_over(self, seconds: float = 1.0) -> bool:
        """Give the call to a worker that waits for it: write everything, release, and return
        True once another has it; `lost` is "handed over".

        False if nobody took it within `seconds`, or if it could not be given away: then this
        worker has it as before. Meanwhile nobody is heard and no tool runs.
        """
        with anyio.move_on_after(self.settings.flush_wait):
            await self._sender.write_partials()
        if self.state is not CallState.HOLDING or not await self.flush(self.settings.flush_wait):
            return False
        return await self._keeper.hand_over(seconds)

    def on_dying(self, leave: Callable[[], Awaitable[object]]) -> None:
        """Call and await `leave` when this worker's task is cancelled, after the last flush."""
        self._dying.append(leave)

    async def aclose(self, outcome: Outcome = "handover") -> None:
        """Write what is left (within `flush_wait`), release with `outcome`, and end."""
        self.outcome = self.outcome or outcome
        await self._outputs.idle(self.settings.flush_wait)
        self._closing.set()
        if self._task is None:
            self._keeper.become(CallState.CLOSED)
        else:
            await asyncio.wait([self._task], timeout=3 * self.settings.flush_wait)

    async def __aenter__(self) -> Call:
        """Start, and return once this worker holds the call.

        Raises:
            Held: A live holder has it and `if_held="leave"`.
            StoreError: The records cannot be read within `open_wait`.
        """
        self.start()
        try:
            if not await self.ready(self.settings.open_wait):
                raise self._keeper.error or StoreUnavailable("the records were not read in time")
            if not await self.holding():
                raise self._refusal or self._why_not()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close as a handover: whoever opens the call next goes on with it."""
        with anyio.CancelScope(shield=True):
            await self.aclose("handover")

    def _why_not(self) -> RecallError:
        if self.lost == "erased":
            return Erased("this call was erased, and its room does not come back")
        return Closed("the call was closed before it was held")

    async def _run(self) -> None:
        dying = True
        try:
            async with anyio.create_task_group() as tasks:
                for part in (self._keep, self._sender.run, self._sender.run_partials):
                    tasks.start_soon(part)
                tasks.start_soon(self._keeper.pulse)
                if self._redactor.redacts:
                    tasks.start_soon(self._sender.run_redact)
                if self._spool is not None and self._spooler is not None:
                    tasks.start_soon(self._spooler.run)
                    tasks.start_soon(self._drain_orphans, self._spool)
                await self._closing.wait()
                tasks.cancel_scope.cancel()
            dying = False
        finally:
            with anyio.CancelScope(shield=True):
                await self._leave(dying)

    def _lost_call(self, state: CallState) -> None:
        if state is CallState.READ_ONLY and self._keeper.run_number:
            self._outbox.lose(Tenure(self._keeper.run_number, self.epoch))

    async def _drain_orphans(self, spool: Spool) -> None:
        """Store what dead workers of this call left on this machine, before it is read if it can
        be done in time."""
        await spool.drain_call(self.call_id)
        self._orphans_drained.set()

    async def _keep(self) -> None:
        if self._spool is not None:
            with anyio.move_on_after(self.settings.drain_wait):
                await self._orphans_drained.wait()
        try:
            await self._keeper.run()
        except Held as held:
            self._refusal = held
        if self._refusal is not None or self.lost == "over":
            self._closing.set()

    async def _leave(self, dying: bool) -> None:
        """Write what is left, hand the call over, and be gone; each step is bounded."""
        try:
            with anyio.move_on_after(self.settings.flush_wait):
                await self._write_rest(dying)
        finally:
            with anyio.move_on_after(self.settings.flush_wait):
                await self._spool_rest()
            self._say_what_is_left()
        with anyio.move_on_after(self.settings.flush_wait):
            await self._give_back()
        self._keeper.become(CallState.CLOSED)
        self._outbox.tell()
        for leave in self._dying if dying else ():
            with anyio.move_on_after(self.settings.flush_wait):
                await leave()

    async def _write_rest(self, dying: bool) -> None:
        async with anyio.create_task_group() as tasks:
            if self._spooler is not None:
                tasks.start_soon(self._spooler.run)
            if not self.known and self._outbox.lag:
                await self._keeper.read()
            await self._sender.drain()
            tasks.cancel_scope.cancel()
        if dying:
            await self._sender.write_partials()

    async def _spool_rest(self) -> None:
        """Leave a file on the disk that has all of it, redacted or withheld, for any process."""
        if self._spooler is not None:
            await self._sender.redact(self.settings.flush_wait / 4)
            await self._spooler.finish(self.outcome or "handover")

    def _say_what_is_left(self) -> None:
        if self.spooled:
            logger.warning(
                "%d records are spooled: they are stored when the store answers", self.spooled
            )
        if left := self.lag - self.spooled:
            logger.error("%d records could not be written before the end", left)

    async def _give_back(self) -> None:
        """Release, if everything is written (rule 8), and let go of the sign of life."""
        try:
            if self.state is CallState.HOLDING and not self._outbox.lag:
                await self._transport.release(
                    self.call_id, self.writer, self.epoch, self.outcome or "handover"
                )
        except RecallError as error:
            logger.warning("the lease was not given back, it will lapse: %s", error)
        try:
            await self._keeper.leave()
        except RecallError as error:
            logger.warning("the sign of life was not given back: %s", error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._keeper.become(CallState.CLOSED)
        self._outbox.tell()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the live call ended early", exc_info=error)
