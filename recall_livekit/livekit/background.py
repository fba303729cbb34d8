"""The tasks that a live session starts: they have an owner, and their faults are seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Background"]

logger = logging.getLogger("recall_livekit")


class Background:
    """Work beside the conversation; a fault in it is logged, and the call goes on."""

    def __init__(self, fault: str = "a hook of the call failed; the call goes on") -> None:
        """Nothing runs yet; `fault` is logged of what fails."""
        self._fault = fault
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`; `ended` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def ended(self) -> None:
        """Return once nothing runs any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def settled(self, seconds: float) -> None:
        """Return once what runs now has ended, or after `seconds`."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    async def aclose(self) -> None:
        """End what runs."""
        for task in self._tasks:
            task.cancel()
        await self.ended()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(self._fault, exc_info=error)
