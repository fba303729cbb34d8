"""What a worker does until it is killed, step by step; each step is told once it is durable."""

from __future__ import annotations

from recall_livekit.engine.engine import Engine
from recall_livekit.engine.requests import Acquire, Grant
from recall_livekit.engine.runs import Origin
from recall_livekit.models import Outcome, Partial, Turn
from recall_livekit.seams import SystemClock
from recall_livekit.settings import Settings
from recall_livekit.stores.sqlite import SqliteStore

from .nursery import Tell

__all__ = ["CALL", "ORDER", "ROOM", "SECRET", "Hand", "erase", "finish", "much_said", "whole_call"]

CALL = "killed call"
ROOM = "RM_first"
SECRET = "4000 1234 5678 9010"
SETTINGS = Settings(snapshot_entries=3)
ORDER = ["1", "2", "3", "4", "waiting 1", "free", "5", "late", "6", "waiting 2", "7"]
"""What `whole_call` says, in the order in which it counts."""
CLOCK = SystemClock()


class Hand:
    """One writer and its engine."""

    def __init__(self, store: SqliteStore, tell: Tell, writer: str, room: str = ROOM) -> None:
        self.engine = Engine(store, CLOCK, SETTINGS)
        self.writer = writer
        self.last = 0
        self.grant: Grant | None = None
        self._tell = tell
        self._origin = Origin(room_sid=room)

    async def request(self, *, steal: bool = False) -> Acquire:
        position = (await self.engine.read(CALL)).position
        return Acquire(
            writer=self.writer,
            attempt=f"attempt of {self.writer}",
            ttl=6.0,
            origin=self._origin,
            lock=await self.engine.hold_lock(f"{self.writer}-lock"),
            steal=steal,
            read_position=position,
        )

    async def take(self, *, steal: bool = False) -> Grant:
        self.grant = await self.engine.acquire(CALL, await self.request(steal=steal))
        self._tell(epoch=self.grant.epoch)
        return self.grant

    async def say(self, text: str) -> None:
        assert self.grant is not None
        turn = Turn(at=CLOCK.now(), role="user", content=text)
        await self.engine.append(CALL, self.writer, self.last + 1, [turn], self.grant.epoch)
        self._said(text)

    async def say_provisional(self, text: str, epoch: int) -> None:
        """Say it without the lease, having read `epoch`."""
        run = await self.engine.open_run(CALL, await self.request())
        turn = Turn(at=CLOCK.now(), role="user", content=text)
        await self.engine.append_provisional(CALL, self.writer, self.last + 1, [turn], run, epoch)
        self._said(text)

    def _said(self, text: str) -> None:
        self.last += 1
        self._tell(acked=text, writer=self.writer, number=self.last)

    async def partial(self, text: str) -> bool:
        partial = Partial(role="assistant", text=text, at=CLOCK.now(), after=self.last)
        return await self.engine.put_partials(CALL, self.writer, 1, [partial])

    async def renew(self) -> None:
        assert self.grant is not None
        await self.engine.renew(CALL, self.writer, self.grant.epoch)

    async def give_back(self, outcome: Outcome = "handover") -> None:
        assert self.grant is not None
        await self.engine.release(CALL, self.writer, self.grant.epoch, outcome)
        self._tell(released=self.grant.epoch)
        await self.engine.let_go_lock(f"{self.writer}-lock")


async def whole_call(store: SqliteStore, tell: Tell) -> None:
    """Every kind of write but erasure: run, lease, turns, snapshots, adoption, release."""
    first, second, third = (Hand(store, tell, name) for name in ("first", "second", "third"))
    await first.take()
    await first.say("1")
    await first.say("2")
    await first.partial("3 and")
    await first.renew()
    await second.say_provisional("waiting 1", epoch=1)
    await first.say("3")
    await first.say("4")
    await first.give_back()
    await second.say_provisional("free", epoch=1)
    await second.take()
    await second.say("5")
    await first.say_provisional("late", epoch=1)
    await third.say_provisional("waiting 2", epoch=2)
    await second.say("6")
    await third.take(steal=True)
    await third.partial("7 and")
    await third.say("7")
    await third.give_back("left")


async def much_said(store: SqliteStore, tell: Tell) -> None:
    """More than a page of entries, snapshots, and words under way, all with the secret."""
    first, second = Hand(store, tell, "first"), Hand(store, tell, "second")
    first.engine = Engine(store, CLOCK, Settings(snapshot_entries=100))
    await first.take()
    for number in range(260):
        await first.say(f"{number}: {SECRET}")
    await first.partial(f"my card is {SECRET}")
    await second.take(steal=True)
    await second.say(f"again: {SECRET}")
    await second.partial(f"it was {SECRET}")


async def erase(store: SqliteStore, tell: Tell) -> None:
    await Engine(store, CLOCK, SETTINGS).erase(CALL)
    tell(erased=True)


async def finish(store: SqliteStore, tell: Tell) -> None:
    """Another room's worker takes the call id while the erasure was begun and no more."""
    finisher = Hand(store, tell, "finisher", room="RM_finisher")
    await finisher.take()
    await finisher.engine.finish_erasure(CALL)
    tell(erased=True)
