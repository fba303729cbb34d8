"""LiveKit's rooms and the agents in them, as a real server and real workers behave: a dispatch to
a worker that launches another job is dropped in silence, and a dead agent stays for 20 s."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from recall_livekit import Held
from recall_livekit.call_ids import standby_call_id
from recall_livekit.engine.requests import Acquire
from recall_livekit.engine.runs import Origin
from recall_livekit.errors import Fenced, RoomsUnavailable, StoreError
from recall_livekit.models import Outcome
from recall_livekit.rooms.livekit_rooms import Dispatched, Member, Room
from recall_livekit.rooms.orders import Orders, Pulse
from recall_livekit.testing.leash import eventually

from .records import LoopClock, Machine, Process

LAUNCH = 0.2
"""From the dispatch to the job's first line, of which most is the server's own waiting."""
JOIN = 0.13
"""From there until it is in the room."""
TIMED_OUT = 20.3
"""A participant that is dead or frozen leaves after so long."""
TOLD = 5.0
"""So long after a dispatch the server tells that a worker took it."""
EMPTY = 20.0
"""A room without a caller is closed after so long."""
TTL = 6.0


@dataclass
class OpenRoom:
    room: Room
    members: dict[str, Member] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    dispatches: list[Dispatched] = field(default_factory=list)

    @property
    def called(self) -> bool:
        return any(one.kind == "caller" for one in self.members.values())


class House:
    """Satisfies `Rooms`; and what a test does to it."""

    def __init__(self, *, idle: int = 1) -> None:
        self.machine = Machine()
        self.clock = LoopClock()
        self.open: dict[str, OpenRoom] = {}
        self.down = False
        self.idle = idle
        self.launching = 0
        self.dispatched: list[tuple[str, str, Orders | None, str]] = []
        self.asked: list[str] = []
        self.joins_after = JOIN
        """How long an agent takes to join, once it took the call."""
        self.starts_after = 0.0
        """How long its entrypoint works before it makes the agent, which takes the call."""
        self.evicted: list[str] = []
        self.withdrawn: list[str] = []
        self.all: list[Agent] = []
        self.on_join: Callable[[Agent], None] = lambda agent: None
        self._names = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    # --- as LiveKit has it ----------------------------------------------------------------------

    async def rooms(self, names: Sequence[str] = ()) -> list[Room]:
        await self._request()
        return [one.room for one in self.open.values() if not names or one.room.name in names]

    async def members(self, room: str) -> list[Member]:
        await self._request()
        return list(self.open[room].members.values()) if room in self.open else []

    async def dispatches(self, room: str) -> list[Dispatched]:
        await self._request()
        return list(self.open[room].dispatches) if room in self.open else []

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        await self._request()
        self.asked.append(identity)
        if room not in self.open or identity not in self.open[room].members:
            return None
        agent = self.open[room].agents.get(identity)
        until = self.clock.monotonic() + seconds
        while agent is None or not agent.answers:
            if (left := until - self.clock.monotonic()) <= 0:
                return None
            await asyncio.sleep(min(0.05, left))  # one that wakes finds the question waiting
        return agent.pulse

    async def perform(
        self, room: str, identity: str, method: str, payload: str = "", *, seconds: float
    ) -> str:
        raise AssertionError("a watcher performs nothing but `ask`")

    async def dispatch(
        self, room: Room, agent_name: str, *, metadata: str = "", orders: Orders | None = None
    ) -> str:
        await self._request()
        self.dispatched.append((room.name, agent_name, orders, metadata))
        here = self.open.get(room.name) or self.make(room.name)
        name = f"AD_{next(self._names)}"
        here.dispatches.append(
            Dispatched(name, agent_name, metadata, orders or Orders(), self.clock.now())
        )
        if self.launching < self.idle:
            self._spawn(self._launch(here, name, agent_name, orders or Orders()))
        return name

    async def withdraw(self, room: str, dispatch: str) -> None:
        await self._request()
        self.withdrawn.append(dispatch)
        for here in self.open.values():
            here.dispatches = [one for one in here.dispatches if one.id != dispatch]
        for agent in self.all:
            if agent.dispatch == dispatch:
                agent.end()

    async def evict(self, room: str, identity: str) -> None:
        await self._request()
        self.evicted.append(identity)
        if room in self.open:
            self.open[room].members.pop(identity, None)
            agent = self.open[room].agents.get(identity)
            if agent is not None and not agent.frozen:
                agent.end()

    async def aclose(self) -> None:
        lives = [agent._task for agent in self.all if agent._task is not None]
        for task in (tasks := [*self._tasks, *lives]):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what happens to it ---------------------------------------------------------------------

    def make(self, name: str) -> OpenRoom:
        sid = f"RM_{next(self._names)}"
        self.open[name] = OpenRoom(Room(name, sid, self.clock.now()))
        return self.open[name]

    def calls(self, room: str, caller: str = "caller") -> OpenRoom:
        """Somebody comes into the room, which is made if it is not there."""
        here = self.open.get(room) or self.make(room)
        here.members[caller] = Member(caller, "caller", self.clock.now())
        return here

    def hangs_up(self, room: str, caller: str = "caller") -> None:
        here = self.open[room]
        here.members.pop(caller)
        self._spawn(self._close_when_empty(here))

    def close(self, room: str) -> None:
        for agent in self.open.pop(room).agents.values():
            agent.end()

    async def call(self, room: str, *, agent_name: str = "support", metadata: str = "") -> Agent:
        """A call as it begins: a caller, and LiveKit's own dispatch, which is not dropped."""
        here = self.calls(room)
        name = f"AD_{next(self._names)}"
        here.dispatches.append(Dispatched(name, agent_name, metadata, at=self.clock.now()))
        await self._launch(here, name, agent_name, Orders())
        return await self.agent(room)

    def live(self, room: str) -> list[Agent]:
        """The agents that are in the room and live."""
        if room not in self.open:
            return []
        here = self.open[room]
        return [one for one in here.agents.values() if one.answers and one.identity in here.members]

    def speaking(self, room: str) -> list[Agent]:
        return [one for one in self.live(room) if one.state == "holding"]

    async def agent(
        self, room: str, *, within: float = 10.0, besides: Agent | None = None
    ) -> Agent:
        """The agent that has the call, once one has."""

        async def speaking() -> Agent | None:
            return next((one for one in self.speaking(room) if one is not besides), None)

        return await eventually(speaking, within=within)

    # --- inside ---------------------------------------------------------------------------------

    async def _request(self) -> None:
        await asyncio.sleep(0.002)
        if self.down:
            raise RoomsUnavailable("LiveKit's server cannot be reached")

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self, here: OpenRoom, dispatch: str, name: str, orders: Orders) -> None:
        self.launching += 1
        agent = Agent(self, here, dispatch, name, orders)
        self.all.append(agent)
        try:
            await asyncio.sleep(LAUNCH)
            self._spawn(self._tell(here, dispatch))
            agent.begin()
            await asyncio.sleep(JOIN)
        finally:
            self.launching -= 1

    async def _tell(self, here: OpenRoom, dispatch: str) -> None:
        await asyncio.sleep(TOLD - LAUNCH)
        here.dispatches = [
            replace(one, launched=one.launched or one.id == dispatch) for one in here.dispatches
        ]

    async def _close_when_empty(self, here: OpenRoom) -> None:
        await asyncio.sleep(EMPTY)
        if not here.called and self.open.get(here.room.name) is here:
            self.close(here.room.name)


class Agent:
    """A job: it takes the call, joins, renews, answers; it can be killed, frozen, cut off."""

    def __init__(
        self, house: House, here: OpenRoom, dispatch: str, name: str, orders: Orders
    ) -> None:
        self.house, self.here, self.dispatch, self.name = house, here, dispatch, name
        self.orders = orders
        self.identity = f"agent-{next(house._names)}"
        self.process: Process = house.machine.process()
        self.state: Literal["", "acquiring", "holding", "standby", "closed"] = "acquiring"
        self.epoch = 0
        self.frozen = self.killed = False
        self.ours = True
        """Whether it is a `RecallAgent`, which knows the question."""
        self._awake = asyncio.Event()
        self._awake.set()
        self._task: asyncio.Task[None] | None = None
        self._lock = ""

    @property
    def call(self) -> str:
        return self.here.room.name

    @property
    def answers(self) -> bool:
        return not (self.killed or self.frozen)

    @property
    def pulse(self) -> Pulse:
        if not self.ours:
            return Pulse(state="")
        standby = self.orders.standby if self.state == "standby" else None
        return Pulse(state=self.state, epoch=self.epoch, standby=standby)

    def begin(self) -> None:
        if not self.killed:
            self._task = asyncio.create_task(self._live())

    def kill(self) -> None:
        """By SIGKILL: LiveKit notices after 20 s."""
        self.killed = True
        self.process.die()
        self._stop()
        self.house._spawn(self._time_out())

    def freeze(self) -> None:
        self.frozen = True
        self._awake.clear()
        self.house._spawn(self._time_out())

    def wake(self) -> None:
        """It goes on; a removed participant rejoins by itself."""
        self.frozen = False
        self._awake.set()
        self._join()

    def end(self) -> None:
        """The job ends in good order, whoever wanted it: it hands over."""
        self.house._spawn(self._end("handover"))

    # --- its life -------------------------------------------------------------------------------

    async def _live(self) -> None:
        if self.house.starts_after:
            await asyncio.sleep(self.house.starts_after)
        if self.orders.standby is not None:
            if not await self._stood_by():
                return
        else:
            await self._take()
        await self._come()
        self._join()
        self.house.on_join(self)
        await self._serve()

    async def _come(self) -> None:
        """Be on the way in; if its lease is broken meanwhile, take the call again, as a keeper
        does."""
        there = self.house.clock.monotonic() + self.house.joins_after
        while (left := there - self.house.clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._stay()
                self.state = "acquiring"
                await self._take()

    async def _stay(self) -> None:
        transport = self.process.recall._transport
        await transport.stay(self.call, self.identity, self.epoch, self._lock)

    async def _stood_by(self) -> bool:
        """Wait as the one standby of the call; False if there is another."""
        transport, chain = self.process.recall._transport, standby_call_id(self.call)
        self.state = "standby"
        try:
            grant = await transport.acquire(chain, await self._request(chain))
        except Held:
            return False
        if self.orders.standby == "joined":
            self._join()
        renewing = asyncio.create_task(self._renew(chain, grant.epoch))
        try:
            await transport.wait_free(self.call)
            await self._take()
        finally:
            renewing.cancel()
        await transport.release(chain, self.identity, grant.epoch, "handover")
        return True

    async def _renew(self, chain: str, epoch: int) -> None:
        while True:
            await asyncio.sleep(TTL / 3)
            await self.process.recall._transport.renew(chain, self.identity, epoch)

    async def _take(self) -> None:
        transport = self.process.recall._transport
        while self.state != "holding":
            try:
                grant = await transport.acquire(self.call, await self._request(self.call))
            except Held:
                self.state = "standby"
                await transport.wait_free(self.call)
                continue
            self.state, self.epoch = "holding", grant.epoch

    async def _request(self, chain: str) -> Acquire:
        self._lock = lock = f"lock-{LoopClock().new_id()}"
        read = await self.process.recall._transport.read(chain)
        await self.process.recall._transport.hold_lock(lock)
        return Acquire(
            writer=self.identity,
            attempt=LoopClock().new_id(),
            ttl=TTL,
            origin=Origin(room_sid=self.here.room.sid, caller="caller"),
            agent_name=self.name,
            lock=lock,
            read_position=read.position,
        )

    async def _serve(self) -> None:
        """Renew; leave when another has the call, or the caller has left."""
        while True:
            await asyncio.sleep(0.5)
            await self._awake.wait()
            if self.here.called is False:
                await asyncio.sleep(2)
                await self._end("left")
                return
            try:
                await self.process.recall._transport.renew(self.call, self.identity, self.epoch)
            except Fenced:
                await self._end("handover")
                return
            except StoreError:
                continue  # cut off: it goes on all the same

    def _join(self) -> None:
        if self.house.open.get(self.call) is self.here:
            standby = (self.orders.standby or "") if self.state == "standby" else ""
            self.here.agents[self.identity] = self
            self.here.members[self.identity] = Member(
                self.identity, "agent", self.house.clock.now(), self.name, standby
            )

    async def _end(self, outcome: Outcome) -> None:
        with suppress(StoreError, Fenced):
            await self.process.recall._transport.release(
                self.call, self.identity, self.epoch, outcome
            )
        self.state = "closed"
        self.process.die()
        self.here.members.pop(self.identity, None)
        self.killed = True
        self._stop()

    def _stop(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _time_out(self) -> None:
        await asyncio.sleep(TIMED_OUT)
        if not self.answers:
            self.here.members.pop(self.identity, None)
