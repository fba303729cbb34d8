"""What is wrong with one room is that room's own: it is said once, and nobody else is the worse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from recall_livekit.errors import KeyRefused, RecallError, StoreUnusable
from recall_livekit.rooms.protocol import Refused

from .house import House
from .running import Running, house, replaced, virtual, watching

LOG = "recall_livekit.watcher"


class Broken:
    """Something that fails for the room `sales` alone."""

    def __init__(self, owner: Any, name: str, error: RecallError) -> None:
        self.owner, self.name, self.error = owner, name, error
        self.asked = getattr(owner, name)
        self.tries = 0
        setattr(owner, name, self)

    async def __call__(self, room: str, *args: Any, **more: Any) -> Any:
        if room == "sales":
            self.tries += 1
            raise self.error
        return await self.asked(room, *args, **more)

    def mend(self) -> None:
        setattr(self.owner, self.name, self.asked)


Break = Callable[[House, Running], Broken]


def unusable(here: House, watch: Running) -> Broken:
    return Broken(watch.process.recall._transport, "read", StoreUnusable("not a database"))


def lease_unusable(here: House, watch: Running) -> Broken:
    return Broken(watch.process.recall._transport, "wait_free", StoreUnusable("not a database"))


def refused(here: House, watch: Running) -> Broken:
    return Broken(here, "members", Refused("LiveKit's server refused: internal: no"))


@pytest.mark.parametrize("breaks", [unusable, refused, lease_unusable])
def test_a_fault_of_one_room_is_no_outage(breaks: Break, caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            billing = await here.call("billing")
            sales = await here.call("sales")
            broken = breaks(here, watch)
            await asyncio.sleep(6)
            before = broken.tries
            await asyncio.sleep(60)
            assert 10 <= broken.tries - before <= 14
            assert watch.watcher.lacks == []
            assert watch.counts.rooms_outages == watch.counts.records_outages == 0
            billing.kill()
            await replaced(here, "billing", billing, within=1)
            broken.mend()
            sales.kill()
            await replaced(here, "sales", sales, within=6)

    story()
    said = [one.getMessage() for one in caplog.records if one.name == LOG]
    assert sum("cannot be watched" in line for line in said) == 1, said
    assert not any("cannot be reached" in line or "back after" in line for line in said)
    assert "sales" not in caplog.text


def test_a_moments_fault_is_tried_again_soon_each_time(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here) as watch:
            agent = await here.call("sales")
            for _ in range(3):
                await asyncio.sleep(150)
                broken = refused(here, watch)
                agent.kill()
                await asyncio.sleep(0.2)
                assert broken.tries == 1
                broken.mend()
                assert await replaced(here, "sales", agent, within=6) < 1.5
                agent = await here.agent("sales")

    story()
    assert caplog.text.count("cannot be watched") == 3


@virtual
async def test_a_key_that_is_refused_is_an_outage() -> None:
    async with house() as here, watching(here) as watch:
        await here.call("sales")
        await asyncio.sleep(6)
        broken = Broken(watch.process.recall._transport, "read", KeyRefused("rotated"))
        await asyncio.sleep(4)
        assert watch.counts.records_outages >= 1
        broken.mend()


def test_a_room_whose_name_is_no_call_id_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def story() -> None:
        async with house() as here, watching(here, serve_rooms=lambda _: True) as watch:
            billing = await here.call("billing")
            for number in range(3):
                here.calls(f"{number}" * 257)
            await asyncio.sleep(30)
            billing.kill()
            await replaced(here, "billing", billing, within=1)
            assert watch.counts.rooms == 1
            assert {room for room, *_ in here.dispatched} == {"billing"}

    with caplog.at_level(logging.INFO, LOG):
        story()
    assert caplog.text.count("a room is not watched") == 1
    assert "257" in caplog.text
