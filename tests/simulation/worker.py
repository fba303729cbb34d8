"""One worker's process on the call: what it records, and the ways in which it ends."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from recall_livekit.call import Call, CallState
from recall_livekit.engine.engine import Engine
from recall_livekit.errors import Closed, OutboxFull, ReadOnly
from recall_livekit.models import Outcome
from recall_livekit.spool.spool import Spool
from recall_livekit.standing import IfHeld
from recall_livekit.testing.faults import Faults, FaultyStore

from .audit import CALL
from .disk import Machine
from .eager import EagerChain
from .fairness import Who
from .odds import OUTAGE
from .outputs import keep_outputs
from .process import Process

if TYPE_CHECKING:
    from .world import Room, World

__all__ = ["Worker"]

OUTCOMES: tuple[Outcome, ...] = ("handover", "handover", "left")


class Worker:
    """A process, its engine, and the live calls that it has one after the other."""

    def __init__(
        self,
        world: World,
        process: Process,
        store: FaultyStore,
        random: Random,
        machine: Machine | None,
    ) -> None:
        self.process = process
        self.store = store
        self.call: Call | None = None
        self.room: Room = world.room
        self._world = world
        self._odds = world.odds
        self._random = random
        self.engine = Engine(store, process.clock, world.settings)
        self.cut_off_until = 0.0
        self.spool: Spool | None = None
        if machine is not None:
            self._open_spool(machine)
        self._eager = self.chance(self._odds.eager)
        self._forget_call()

    def chance(self, odds: float) -> bool:
        return self._random.random() < odds

    def _open_spool(self, machine: Machine) -> None:
        disk = machine.disk(self.process)
        clock, settings = self.process.clock, self._world.settings
        self.spool = Spool(disk, "here", self.engine, clock, settings)
        if self._world.spools.random() < self._odds.outage:
            self.cut_off()

    def cut_off(self) -> None:
        """The store is out of its reach for a while."""
        seconds = self._world.spools.uniform(0.5, self._odds.longest_outage)
        self.cut_off_until = asyncio.get_running_loop().time() + seconds
        self.weather(self._world.weather)

    def weather(self, faults: Faults) -> None:
        cut_off = asyncio.get_running_loop().time() < self.cut_off_until
        self.store.faults = OUTAGE if cut_off else faults

    async def live(self) -> None:
        """Have the call, once or more; end in one of the ways that processes end."""
        while self.process.alive:
            self.open()
            await self._work(self._random.expovariate(1 / self._odds.life))
            if self.chance(self._odds.crash):
                self.process.die()
            else:
                await self._close()
            if not self.chance(self._odds.another):
                break
        await self.exit()

    def wants_it(self) -> bool:
        """Whether it would take the call if it could."""
        call = self.call
        if not self.process.alive or call is None or call._closing.is_set():
            return False
        if call.lost is None:
            return call._keeper._if_held != "leave"
        return call.if_lease_lost == "standby"

    def open(self, if_held: IfHeld | None = None, room: Room | None = None) -> Call:
        """Begin to have the call, as a new writer."""
        room = room or self._some_room()
        if if_held is None:
            if_held = "steal" if self.chance(self._odds.steal) else "standby"
            if_held = "leave" if self.chance(self._odds.leave) else if_held
        call = Call(
            self.engine,
            self.process.clock,
            self._world.settings,
            CALL,
            room_sid=room.sid,
            caller=room.caller,
            if_held=if_held,
            if_lease_lost=self._random.choice(("standby", "standby", "leave", "speak")),
            spool=self.spool,
        )
        self.room, self.call = room, call
        self._world.judge.fairness.who[call.writer] = Who(self.process, if_held == "steal")
        self._world.note(f"{self.process.name} is {call.writer} {room.sid} {if_held}")
        self._world.judge.spools.opened(call, room.sid)
        self._tell_judge(call)
        call.start()
        self.process.own(call._task)
        if self.spool is not None:
            self.process.own(self.spool._task)
        self.process.spawn(self._note_first_read(call))
        if self.chance(self._odds.outputs):
            self.process.spawn(keep_outputs(self._world, self, call, self._random))
        return call

    def _some_room(self) -> Room:
        if self.chance(self._odds.no_room):
            return self._world.nowhere
        return self._world.old_room if self.chance(self._odds.old_room) else self._world.room

    def _tell_judge(self, call: Call) -> None:
        """What the outbox is told, the judge is told."""
        outbox, clear = call._outbox, call._outbox.clear
        acknowledge = outbox.acknowledge
        cleared = False

        def told(last: int, epoch: int = 0) -> None:
            if not cleared:
                self._world.judge.acknowledged(call.writer, last, epoch)
            acknowledge(last, epoch)

        def erased() -> int:
            nonlocal cleared
            cleared = True
            self._world.judge.spools.cleared(call.writer)
            dropped = clear()
            cleared = False
            return dropped

        outbox.acknowledge = told  # type: ignore[method-assign]
        outbox.clear = erased  # type: ignore[method-assign]

    async def _note_first_read(self, call: Call) -> None:
        if await call.ready() and call._keeper.reading is not None:
            read = self._world.judge.first_read
            read.setdefault(call.writer, call._keeper.reading.position)

    # --- work -----------------------------------------------------------------------------------

    async def _work(self, seconds: float) -> None:
        now = self.process.clock.monotonic
        end, stops = (
            now() + seconds,
            now()
            + (self._random.random() * seconds if self.chance(self._odds.stop) else 2 * seconds),
        )
        while self.process.alive and now() < end and self._stays():
            await asyncio.sleep(self._random.expovariate(1 / self._odds.pause))
            if self.process.alive and now() > stops:
                stops = end + 1e9
                await self._stand_still()
                end += 1.0
            if self.process.alive:
                self._record()

    def _stays(self) -> bool:
        call = self.call
        if call is None or call.state is CallState.CLOSED:
            return False
        return not (call.lost and call.if_lease_lost == "leave")

    async def _stand_still(self) -> None:
        self._world.note(f"{self.process.name} stands still")
        self.process.stop()
        await asyncio.sleep(self._random.uniform(0.5, 5.0))
        self.process.go_on()
        self._world.note(f"{self.process.name} goes on")

    def _record(self) -> None:
        if self.chance(self._odds.evict):
            self._forget_call()
        try:
            self._one_record()
        except (ReadOnly, Closed, OutboxFull):
            return  # it was told, and says so to whoever speaks

    def _forget_call(self) -> None:
        """256 other calls push this one out of the engine's memory."""
        self.engine._chains.pop(CALL, None)
        if self._eager:
            self.engine._chains[CALL] = EagerChain(
                self.store, CALL, self._world.settings.retained_chars
            )

    def _one_record(self) -> None:
        call, text = self.call, self._world.marker()
        assert call is not None
        role = self._random.choice(("user", "assistant"))
        match self._random.randrange(10):
            case 0:
                call.record_userdata({"step": text})
            case 1:
                call.update_working_state(goal=text)
            case 2 | 3:
                call.partial("user", text)
            case 4:
                self.process.spawn(self._act(call, text))
            case _:
                call.record_turn("user" if role == "user" else "assistant", text)

    async def _act(self, call: Call, text: str) -> None:
        """Run a tool, if it was begun as it has to be."""
        try:
            begun = await call.begin_action("charge", arguments=text)
            if begun.durable:
                self._world.judge.may_run(call.writer, begun.key)
            await asyncio.sleep(self._random.expovariate(1 / self._odds.pause))
            call.end_action(begun.key, "done" if begun.durable else "abandoned")
        except (ReadOnly, Closed, OutboxFull):
            return

    # --- ends -----------------------------------------------------------------------------------

    async def _close(self) -> None:
        outcome = self._random.choice(OUTCOMES)
        if self.chance(self._odds.ended):
            outcome = "ended"
        if self.call is not None and self.process.alive:
            self._world.note(f"{self.process.name} closes: {outcome}")
            await self.call.aclose(outcome)

    async def exit(self) -> None:
        """End the process, one way or the other."""
        if self.process.alive:
            if self.spool is not None:
                await self.spool.aclose()
            self.process.on_death.clear()
            await self.engine.aclose()
            self.process.die()
        self._world.left(self)
