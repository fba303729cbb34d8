"""What happens to the calls of a namespace, told to whoever listens. Nobody waits for one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from ..engine.news import CallEvent, EventKind
from ..models import Outcome
from .metrics import Metrics

__all__ = ["QUEUED", "Ear", "News"]

QUEUED = 1000
"""Events that wait for one listener; of more it is told only that it missed some."""
_MISSED = CallEvent(event="missed")


class News:
    """The listeners of one namespace in this process."""

    def __init__(self, metrics: Metrics) -> None:
        """Have none."""
        self._metrics = metrics
        self._ears: set[Ear] = set()

    def tell(self, event: EventKind, call: str, epoch: int, outcome: Outcome | None = None) -> None:
        """Tell all who listen; it takes no time, however slow they are."""
        self._metrics.call_events.labels(event).inc()
        told = CallEvent(event=event, call_id=call, epoch=epoch, outcome=outcome)
        for ear in self._ears:
            if not ear.hear(told):
                self._metrics.missed.inc()

    @contextmanager
    def listening(self) -> Iterator[Ear]:
        """Yield what hears all that is told from now on."""
        ear = Ear()
        self._ears.add(ear)
        try:
            yield ear
        finally:
            self._ears.discard(ear)


class Ear:
    """One listener's queue. The first thing in it is that what came before was missed."""

    def __init__(self) -> None:
        self._told = deque([_MISSED])
        self._rung = anyio.Event()

    def hear(self, event: CallEvent) -> bool:
        """Queue the event; False if there is no place: what waited is forgotten for it."""
        heard = len(self._told) < QUEUED
        if not heard:
            self._told.clear()
            self._told.append(_MISSED)
        self._told.append(event)
        self._rung.set()
        return heard

    async def next(self) -> CallEvent:
        """Return the next event, when there is one."""
        while not self._told:
            self._rung = anyio.Event()
            await self._rung.wait()
        return self._told.popleft()
