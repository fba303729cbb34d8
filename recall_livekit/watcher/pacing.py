"""One dispatch after the other: a burst of them is dropped in silence by the workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

__all__ = ["Turns"]


class Turns:
    """The queues before the workers, one for each agent name; who comes first is served first.

    Whoever has its turn keeps it until its agent has joined or will not. Standbys have a queue of
    their own, in which they wait until no call waits for its agent.
    """

    def __init__(self, at_once: int) -> None:
        """Let so many of one agent name have their turn at the same time."""
        self._at_once = at_once
        self._queues: dict[tuple[str, bool], _Queue] = {}

    @asynccontextmanager
    async def turn(self, agent_name: str, *, standby: bool = False) -> AsyncIterator[None]:
        """Wait for a turn, and have it within this block."""
        name = (agent_name, standby)
        queue = self._queues.setdefault(name, _Queue(1 if standby else self._at_once))
        queue.inside += 1
        try:
            async with queue.places:
                yield
        finally:
            queue.inside -= 1
            if not queue.inside:
                del self._queues[name]

    def is_calm(self, agent_name: str) -> bool:
        """Whether nobody is being dispatched under this name, and nobody waits for it."""
        return not any((agent_name, standby) in self._queues for standby in (False, True))


class _Queue:
    def __init__(self, places: int) -> None:
        self.places = anyio.Semaphore(places)
        self.inside = 0
