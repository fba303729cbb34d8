"""`Watcher`: sees to it that every live call has an agent, however the last one died."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from ..call_ids import WATCHER_CALL_ID, check_call_id, is_reserved
from ..client import Recall
from ..engine.news import CallEvent
from ..errors import InvalidCallId, RoomsUnavailable, StoreError
from ..rooms.orders import StandbyKind
from ..rooms.protocol import Rooms
from ..stores.keys import call_key
from .acting import Hands
from .counts import Counts
from .leading import Leader
from .looking import Looker
from .pacing import Turns
from .policy import Policy
from .reach import Reach
from .room_watch import RoomWatch
from .settings import WatcherSettings
from .tools import Tools

if TYPE_CHECKING:
    from ..rooms.livekit_rooms import Room
    from .webhooks import Received, Webhooks

__all__ = ["Watcher"]

logger = logging.getLogger("recall_livekit.watcher")

SIGNS = 1024
"""Signs of so many rooms that are not known yet wait to be looked up; the sweep finds the rest."""


class Watcher:
    """Replaces the agents of a self-hosted LiveKit server that die, freeze, or never come.

    A room must have an agent while a caller is in it and its call goes on by the records, or
    `serve_rooms` says so. It is touched only then, and only if no agent in it answers. An agent
    that lives and is cut off from the records alone keeps its call. Any number of watchers may
    run on the same records: one of them acts.

    The call id must be the name of the room, as `RecallAgent(resume=ctx.room.name)` has it.
    """

    def __init__(
        self,
        recall: Recall,
        *,
        rooms: Rooms | None = None,
        agent_name: str | None = None,
        serve_rooms: Callable[[Room], bool] | None = None,
        standby: StandbyKind | None = None,
        standby_for: Callable[[str], bool] | None = None,
        fallback_agent: str | None = None,
        settings: WatcherSettings | None = None,
        webhooks: Webhooks | None = None,
    ) -> None:
        """Watch nothing yet: `run` does.

        Args:
            recall: The records. It is not closed here.
            rooms: LiveKit's server; default `LiveKitRooms()` (`LIVEKIT_URL`, `LIVEKIT_API_KEY`,
                `LIVEKIT_API_SECRET`), which is closed with `run`.
            agent_name: Who is dispatched; default: who had the call, or the room's first.
            serve_rooms: Says of a room without any records whether it must have an agent: the
                net for a first dispatch that was dropped. It needs `agent_name`.
            standby: The kind of standby that each live call is given; default none.
            standby_for: Says by the call id whether a call is given one; default all are.
            fallback_agent: Who is dispatched, once, to a call that killed `give_up_after` agents.
            settings: How it behaves.
            webhooks: Verifies LiveKit's webhooks; default by the key of the environment.

        Raises:
            InvalidSettings: See `Policy`.
        """
        self.settings = settings or WatcherSettings()
        self.counts = Counts()
        self._recall = recall
        self._rooms = rooms
        self._webhooks = webhooks
        self._policy = Policy(
            agent_name=agent_name,
            serve_rooms=serve_rooms,
            standby=standby,
            standby_for=standby_for,
            fallback_agent=fallback_agent,
        )
        self._leader = Leader(recall, self.settings.lease_ttl, self._acts_or_not)
        self._turns = Turns(self.settings.dispatches_at_once)
        self._reach = Reach(recall._clock, self.counts)
        self._watches: dict[str, RoomWatch] = {}
        self._signs: dict[str, None] = {}
        self._signed = anyio.Event()
        self._full = self._misnamed = False

    # --- from outside -------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch until cancelled. What fails on the way is said, and tried again.

        Raises:
            InvalidSettings: LiveKit's server is not named.
        """
        async with self._open_rooms() as rooms, anyio.create_task_group() as tasks:
            tools = self._tools(rooms)
            if not tools.follows:
                tasks.start_soon(self._listen)
            tasks.start_soon(self._leader.run)
            tasks.start_soon(self._try_records)
            await self._sweep(tools, tasks)

    def sign(self, room: str) -> None:
        """Look at this room now. Signs may be lost, late, doubled or wrong: they are hints."""
        watch = self._watches.get(room)
        if watch is not None:
            watch.due()
        elif len(self._signs) < SIGNS:
            self._signs[room] = None
            self._signed.set()

    def webhook(self, body: str | bytes, authorization: str) -> Received:
        """Take a webhook of LiveKit's server, with its Authorization header, as a sign. One that
        is not LiveKit's does nothing; what came of it is returned.

        Raises:
            InvalidSettings: There is no key to verify it with.
        """
        if self._webhooks is None:
            from .webhooks import Webhooks  # loads LiveKit's API

            self._webhooks = Webhooks()
        received = self._webhooks.receive(body, authorization)
        if received.room is not None:
            self.sign(received.room)
        return received

    @property
    def lacks(self) -> list[str]:
        """What keeps this watcher from acting if it is its turn; nothing: it is ready."""
        return self._reach.lacks

    # --- the rooms ----------------------------------------------------------------------------

    async def _sweep(self, tools: Tools, tasks: TaskGroup) -> None:
        """Know the rooms that are open: all of them every `list_interval`, and those that a sign
        names at once."""
        due = 0.0
        while True:
            now = tools.clock.monotonic()
            names: Sequence[str] = () if now >= due else list(self._signs)
            self._signed = anyio.Event()
            self._signs.clear()
            try:
                found = await tools.rooms.rooms(names)
            except RoomsUnavailable as error:
                self._reach.failed(error)
                due = now + self.settings.outage_wait
            else:
                self._reach.rooms_answered()
                due = due if names else now + self.settings.list_interval
                for room in found:
                    self._watch(room, tools, tasks)
            with anyio.move_on_after(max(0.0, due - tools.clock.monotonic())):
                await self._signed.wait()

    def _watch(self, room: Room, tools: Tools, tasks: TaskGroup) -> None:
        known = self._watches.get(room.name)
        if is_reserved(room.name):  # whoever may choose names must not reach our own chains
            return
        if not self._is_call(room.name):
            return
        if known is not None:
            if known.room.sid != room.sid:
                known.due()  # it will find that its room is gone, and the new one takes its place
            return
        full = len(self._watches) >= self.settings.most_rooms
        if full and not self._full:
            logger.error("more than %d rooms: the others are not watched", len(self._watches))
        self._full = full
        if not full:
            watch = self._watches[room.name] = RoomWatch(room, tools)
            tasks.start_soon(self._keep, watch)
        self._count()

    def _is_call(self, name: str) -> bool:
        """Whether a room of this name can have a call in the records; once, why one cannot."""
        try:
            check_call_id(name)
        except InvalidCallId as error:
            if not self._misnamed:
                self._misnamed = True
                logger.error("a room is not watched, nor is any other of such a name: %s", error)
            return False
        return True

    async def _keep(self, watch: RoomWatch) -> None:
        """Never lets a fault over one room end the watch of the others."""
        name = watch.room.name
        try:
            await watch.run()
        except Exception:
            logger.exception("call %s: its watch failed, and begins anew", call_key(name))
            await anyio.sleep(self.settings.outage_wait)
        finally:
            del self._watches[name]
            self._count()
        self.sign(name)  # there may be a new room of this name

    def _count(self) -> None:
        self.counts.rooms = len(self._watches)

    # --- the records --------------------------------------------------------------------------

    async def _try_records(self) -> None:
        """Know whether they can be reached, also while another watcher acts."""
        while True:
            try:
                await self._recall._transport.read(WATCHER_CALL_ID)
            except StoreError as error:
                self._reach.failed(error)
            else:
                self._reach.records_answered()
            await anyio.sleep(self.settings.sweep_interval)

    async def _listen(self) -> None:
        """Take what a Recall server tells of its calls as signs, until the records are closed."""
        events = self._recall._transport.events()
        assert events is not None
        async with aclosing(events):
            async for event in events:
                self._heard(event)

    def _heard(self, event: CallEvent) -> None:
        if event.event == "missed":
            self._look_everywhere()
        elif not is_reserved(event.call_id):
            watch = self._watches.get(event.call_id)
            if watch is not None and event.event in ("broken", "lapsed"):
                watch.due(doubted=event.epoch)
            else:
                self.sign(event.call_id)

    def _acts_or_not(self, acts: bool) -> None:
        self.counts.acting = acts
        if acts:
            self._look_everywhere()

    def _look_everywhere(self) -> None:
        for watch in self._watches.values():
            watch.due()

    # --- its parts ----------------------------------------------------------------------------

    @asynccontextmanager
    async def _open_rooms(self) -> AsyncIterator[Rooms]:
        if self._rooms is not None:
            yield self._rooms
            return
        from ..rooms.livekit_rooms import LiveKitRooms  # loads LiveKit's API

        rooms = LiveKitRooms()
        try:
            yield rooms
        finally:
            with anyio.CancelScope(shield=True):
                await rooms.aclose()

    def _tools(self, rooms: Rooms) -> Tools:
        recall, settings, policy, counts = self._recall, self.settings, self._policy, self.counts
        transport, clock, leader = recall._transport, recall._clock, self._leader
        return Tools(
            rooms=rooms,
            transport=transport,
            looker=Looker(rooms, transport, clock, settings, policy, counts),
            hands=Hands(rooms, recall, leader, clock, settings, counts),
            leader=leader,
            turns=self._turns,
            reach=self._reach,
            clock=clock,
            settings=settings,
            policy=policy,
            counts=counts,
            follows=transport.events() is None,
        )
