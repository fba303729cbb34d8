"""An event loop whose time is virtual: when nothing is ready, the next timer is now."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["Deadlock", "run_virtual"]

T = TypeVar("T")


class Deadlock(Exception):
    """Nothing is ready and no timer is set: whatever is waited for never comes."""


class _Timeline:
    """Stands where a loop's selector is: instead of waiting it moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, seconds: float | None) -> list[Any]:
        if seconds is None:
            raise Deadlock
        self.now += max(0.0, seconds)
        return []


class _VirtualLoop(asyncio.BaseEventLoop):
    """No sockets, no threads, no wall clock: the same coroutines take the same steps."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Timeline()

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, in no time."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(main)
