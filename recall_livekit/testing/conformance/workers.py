"""Two workers on the store under test, each with an engine of its own, and a call of theirs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ...engine.engine import Engine
from ...engine.requests import Acquire
from ...engine.runs import Origin
from ...models import Record, Turn
from ...settings import Settings
from ..clock import FakeClock
from .base import Conformance

__all__ = ["CALL", "ROOM", "SECRET", "TTL", "TwoWorkers", "request", "turns"]

CALL = "+49 170 1234567"
SECRET = "four two four two"
ROOM = Origin(room_sid="RM_one", caller="anna")
TTL = 6.0


def turns(*texts: str, at: float = 1.0) -> Sequence[Record]:
    return [Turn(at=at, role="user", content=text) for text in texts]


def request(
    writer: str, *, attempt: str = "1", steal: bool = False, origin: Origin = ROOM, read: int = 0
) -> Acquire:
    return Acquire(
        writer=writer, attempt=attempt, ttl=TTL, origin=origin, steal=steal, read_position=read
    )


class TwoWorkers(Conformance):
    """Two workers, `one` and `two`, each with an engine and a handle of its own."""

    @pytest.fixture(autouse=True)
    async def workers(self, place: None) -> object:
        self.clock = FakeClock()
        self.one = Engine(self.open_store(), self.clock, Settings(snapshot_entries=8))
        self.two = Engine(self.open_store(), self.clock, Settings(snapshot_entries=8))
        yield
        await self.one.aclose()
        await self.two.aclose()

    async def said(self) -> list[str]:
        third = Engine(self.open_store(), self.clock)
        found = [turn.content for turn in await third.turns(CALL)]
        await third.aclose()
        return found
