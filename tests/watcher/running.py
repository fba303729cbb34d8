"""Stories in virtual time, with watchers that run in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from recall_livekit.watcher import Watcher, WatcherSettings

from ..simulation.virtual import run_virtual
from .house import Agent, House
from .records import Process

Story = Callable[[], Coroutine[Any, Any, None]]


def virtual(story: Story) -> Callable[[], None]:
    """Run it in virtual time."""

    @wraps(story)
    def test() -> None:
        run_virtual(asyncio.wait_for(story(), 3600))

    del test.__wrapped__
    return test


@asynccontextmanager
async def house(**options: Any) -> AsyncIterator[House]:
    here = House(**options)
    try:
        yield here
    finally:
        await here.aclose()


class Running:
    """A watcher that runs."""

    def __init__(self, house: House, **options: Any) -> None:
        self.process: Process = house.machine.process()
        settings = WatcherSettings(**options.pop("settings", {}))
        options.setdefault("rooms", house)
        self.watcher = Watcher(self.process.recall, settings=settings, **options)
        self.task = asyncio.create_task(self.watcher.run())

    @property
    def counts(self) -> Any:
        return self.watcher.counts

    def kill(self) -> None:
        """As by SIGKILL."""
        self.process.die()
        self.task.cancel()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.task.done() and not self.task.cancelled():
            self.task.result()


@asynccontextmanager
async def watching(house: House, **options: Any) -> AsyncIterator[Running]:
    options.setdefault("agent_name", "support")
    running = Running(house, **options)
    try:
        await asyncio.sleep(0.5)
        yield running
    finally:
        await running.stop()


def now() -> float:
    return asyncio.get_running_loop().time()


async def replaced(here: House, room: str, dead: Agent, *, within: float) -> float:
    """Returns after how many seconds another agent is there, alone."""
    began = now()
    await here.agent(room, besides=dead, within=within)
    took = now() - began
    await asyncio.sleep(3)
    assert len(here.speaking(room)) == 1
    return took
