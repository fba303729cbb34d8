"""One worker's process: it can be killed between any two writes, and stopped for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Died", "Process", "ProcessClock"]

START = 1_800_000_000.0


class Died(BaseException):
    """Raised wherever a killed process touches the world; nothing in the product catches it."""


class ProcessClock:
    """A process's own clock: skewed, and standing still while the process does."""

    def __init__(self, process: Process, new_id: Callable[[], str], skew: float) -> None:
        self._process = process
        self._new_id = new_id
        self.skew = skew

    def now(self) -> float:
        return START + self.monotonic() + self.skew

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.stand()

    def jitter(self, seconds: float) -> float:
        return seconds

    def new_id(self) -> str:
        return self._new_id()


class Process:
    """Everything that it does to the data or to time passes through `stand`."""

    def __init__(
        self,
        name: str,
        new_id: Callable[[], str],
        failed: Callable[[Exception], None],
        skew: float = 0.0,
    ) -> None:
        self.name = name
        self.failed = failed
        """Told what nobody in the process caught."""
        self.clock = ProcessClock(self, new_id, skew)
        self.alive = True
        self.fuse: int | None = None
        """After how many writes it dies, between this one and the next."""
        self.stopped_at = -1.0
        """When it was stopped last, or went on."""
        self.jumped_at = -1.0
        """When its wall clock jumped last."""
        self.died = asyncio.Event()
        self.on_death: list[Callable[[], None]] = []
        self._running: asyncio.Event | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` in this process; it is gone when the process is."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def own(self, task: asyncio.Task[Any] | None) -> None:
        """End a task of the product with the process, too."""
        if task is not None:
            self._tasks[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._forget(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failed(error)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    @property
    def stopped(self) -> bool:
        return self._running is not None

    def stop(self) -> None:
        """SIGSTOP."""
        self._running = self._running or asyncio.Event()
        self.stopped_at = self.clock.monotonic()

    def go_on(self) -> None:
        """SIGCONT."""
        if self._running is not None:
            self._running.set()
            self._running = None
            self.stopped_at = self.clock.monotonic()

    def jump(self, seconds: float) -> None:
        """Set the wall clock."""
        self.clock.skew += seconds
        self.jumped_at = self.clock.monotonic()

    def die(self) -> None:
        """SIGKILL: nothing of it reaches the data any more, whatever its tasks still try."""
        if not self.alive:
            return
        self.alive = False
        self.died.set()
        self.go_on()
        for told in self.on_death:
            told()
        for task in list(self._tasks):
            task.cancel()

    async def stand(self) -> None:
        """Return while the process runs; later, if it is stopped; never, if it is dead."""
        while self._running is not None:
            await self._running.wait()
        self.live()

    def live(self) -> None:
        if not self.alive:
            raise Died(self.name)

    def wrote(self) -> None:
        """Burn the fuse: this write is in the data, the next one never is."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.die()
                raise Died(self.name)
