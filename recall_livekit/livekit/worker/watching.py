"""A watcher inside a worker's main process, for as long as the worker takes jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict

from ...client import Recall
from ...errors import InvalidSettings
from ...rooms.address import cloud_host

if TYPE_CHECKING:
    from ...rooms.livekit_rooms import LiveKitRooms, Room
    from ...rooms.orders import StandbyKind
    from ...watcher import WatcherSettings

__all__ = ["WatcherChoice", "WatcherOptions", "Watches", "Watching", "ended"]

logger = logging.getLogger("recall_livekit")

RESTART_SECONDS = 5.0
"""After a watcher that failed, the next one is started so much later."""
CLOUD = (
    "%s starts the job of a dead agent again by itself, and a watcher would add a second agent: "
    "this worker does not watch. Pass it a Watcher of your own if it is to do so all the same"
)
STOP_SECONDS = 5.0
"""The longest that is waited for a watcher to end: it gives its lease back."""


class Watches(Protocol):
    """A `Watcher`, or what can be used as one."""

    async def run(self) -> None:
        """Watch until cancelled."""


class WatcherOptions(TypedDict, total=False):
    """What a `Watcher` takes; without `recall` it is `Recall.open()`, closed with the watcher."""

    recall: Recall
    agent_name: str | None
    serve_rooms: Callable[[Room], bool] | None
    standby: StandbyKind | None
    standby_for: Callable[[str], bool] | None
    fallback_agent: str | None
    settings: WatcherSettings | None


WatcherChoice: TypeAlias = bool | WatcherOptions | Watches | Callable[[], Watches]
"""Whether there is a watcher, with what options, which one, or how one is made."""


class Watching:
    """Runs a watcher, and another one if that one fails: no fault of it ends a worker."""

    def __init__(self, choice: WatcherChoice, rooms: Callable[[], LiveKitRooms]) -> None:
        """Start nothing yet. `rooms` names the LiveKit server, for a watcher that is made here.

        Raises:
            InvalidSettings: It is no choice, or its options do not fit together.
        """
        _check(choice)
        self._choice = choice
        self._rooms = rooms
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch from now on. Needs a running event loop."""
        if self._choice is not False and self._task is None:
            self._task = asyncio.create_task(self._run(), name="recall watcher")

    async def end(self) -> None:
        """Watch no more."""
        task, self._task = self._task, None
        await ended(task)

    async def _run(self) -> None:
        while True:
            try:
                await self._run_once()
                return
            except Exception:
                logger.exception("the watcher failed: it begins again in %g s", RESTART_SECONDS)
            await asyncio.sleep(RESTART_SECONDS)

    async def _run_once(self) -> None:
        choice = self._choice
        if isinstance(choice, bool):
            await self._watch({})
        elif isinstance(choice, dict):
            await self._watch(choice)
        elif callable(choice):
            await choice().run()
        else:
            await choice.run()

    async def _watch(self, options: WatcherOptions) -> None:
        from ...watcher import Watcher  # only a worker that watches loads it

        rooms, given = self._rooms(), options.get("recall")
        recall = given or Recall.open()
        try:
            if host := cloud_host(rooms.url):
                logger.error(CLOUD, host)
                return
            rest = {name: value for name, value in options.items() if name != "recall"}
            await Watcher(recall, rooms=rooms, **rest).run()  # type: ignore[arg-type]
        finally:
            await rooms.aclose()
            if given is None:
                await recall.aclose()


def _check(choice: object) -> None:
    if isinstance(choice, dict):
        unknown = sorted(set(choice) - set(WatcherOptions.__annotations__))
        if unknown:
            known = ", ".join(sorted(WatcherOptions.__annotations__))
            raise InvalidSettings(f"watcher has no {', '.join(unknown)}; it has {known}")
        from ...watcher.policy import Policy  # only a worker that watches loads it

        Policy(**{name: one for name, one in choice.items() if name not in ("recall", "settings")})
    elif not (isinstance(choice, bool) or callable(choice) or hasattr(choice, "run")):
        raise InvalidSettings(f"watcher is True, options, a Watcher or what makes one: {choice!r}")


async def ended(task: asyncio.Task[None] | None) -> None:
    """Cancel the task, if there is one, and wait a while for its end."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task], timeout=STOP_SECONDS)
