"""Several processes at once, and what they tell in one row."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from .process import DemoFailed, Process
from .wire import Event

__all__ = ["STEP_S", "Cast", "cast"]

_P = TypeVar("_P", bound=Process)
_Told = tuple[Process, Event | DemoFailed | None]
STEP_S = 20.0
"""The longest that anything of a call may take."""


class Cast:
    """Who takes part. Each is listened to from `join` on, so that none waits for its reader."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[_Told] = asyncio.Queue()
        self._put_back: deque[_Told] = deque()
        self._listening: dict[Process, asyncio.Task[None]] = {}

    def join(self, process: _P) -> _P:
        """Listen to a process from now on, and see to its end."""
        self._listening[process] = asyncio.create_task(self._listen(process))
        return process

    async def next(self) -> tuple[Process, Event | None]:
        """Return what was told next, and by whom; None is a process's last: it is dead.

        Raises:
            DemoFailed: A process ended that was not killed.
        """
        who, told = self._put_back.popleft() if self._put_back else await self._told.get()
        if isinstance(told, DemoFailed):
            raise told
        return who, told

    async def until(
        self,
        enough: Callable[[], object],
        note: Callable[[Process, Event], None],
        *,
        within: float = STEP_S,
    ) -> None:
        """Pass on what everybody tells until it is enough.

        Raises:
            DemoFailed: It takes too long, or a process ended that was not killed.
        """
        try:
            async with asyncio.timeout(within):
                while not enough():
                    who, event = await self.next()
                    if event is not None:
                        note(who, event)
        except TimeoutError:
            raise DemoFailed(f"nothing more happened for {within} s") from None

    async def kill(self, process: Process) -> float:
        """SIGKILL; return when it was dead."""
        process.kill()
        await asyncio.wait_for(process.gone(), STEP_S)
        return time.monotonic()

    async def last_words(self, process: Process) -> list[Event]:
        """Return what a killed process had told; what others tell meanwhile comes next."""
        last: list[Event] = []
        others: list[_Told] = []
        while True:
            who, told = await self.next()
            if who is not process:
                others.append((who, told))
            elif told is None:
                self._put_back.extend(others)
                return last
            else:
                last.append(told)

    async def disperse(self) -> None:
        """Kill whoever is still there; return when all are gone."""
        for process in self._listening:
            process.kill()
        for process in self._listening:
            await process.gone()
        await asyncio.gather(*self._listening.values())

    async def _listen(self, process: Process) -> None:
        ended = False
        try:
            while (event := await process.next()) is not None:
                self._told.put_nowait((process, event))
                ended = ended or event.kind == "ended"
            if not (ended or process.killed):
                raise DemoFailed(f"{process.name} ended too early")
            self._told.put_nowait((process, None))
        except DemoFailed as error:
            self._told.put_nowait((process, error))


@asynccontextmanager
async def cast() -> AsyncIterator[Cast]:
    """Own the processes that join; whatever happens inside, all are gone at the end."""
    opened = Cast()
    try:
        yield opened
    finally:
        await opened.disperse()
