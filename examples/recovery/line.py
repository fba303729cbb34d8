"""The pipe between a process and the demo that started it."""

from __future__ import annotations

import asyncio
import os
import threading
import time

from .wire import Event

__all__ = ["Line"]


class Line:
    """Tells the demo what happens here, and hears its orders. Needs a running event loop."""

    def __init__(self) -> None:
        # whatever prints in this process must not end up between our lines
        self._out = os.dup(1)
        os.dup2(2, 1)
        self._loop = asyncio.get_running_loop()
        self.orders: asyncio.Queue[Event] = asyncio.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, kind: str, **fields: object) -> None:
        """Say it now: a pipe keeps what was written by a process that is killed right after."""
        os.write(self._out, Event(kind, time.monotonic(), fields).line())

    def _listen(self) -> None:
        # unbuffered: the interpreter cannot end while a thread waits inside `sys.stdin`
        with open(0, "rb", buffering=0, closefd=False) as orders:
            for line in orders:
                self._loop.call_soon_threadsafe(self.orders.put_nowait, Event.of_line(line))
        os._exit(0)  # the demo is gone, and so is this process, whatever it is doing
