"""GET /v1/events: what happens to the calls of the key's namespace, for a watcher."""

from __future__ import annotations

from anyio.abc import TaskGroup
from starlette.types import ASGIApp

from ..wire import EventLine
from .line_stream import LineStream, Say
from .route import Asked, Nothing

__all__ = ["events"]


async def events(asked: Asked[Nothing, Nothing]) -> ASGIApp:
    """Return the stream."""
    return _Listener(asked)


class _Listener(LineStream):
    """The stream of someone who listens."""

    kind = "listener"
    line = EventLine

    def __init__(self, asked: Asked[Nothing, Nothing]) -> None:
        super().__init__(asked.server)
        self._news = asked.news

    async def tell(self, tasks: TaskGroup, say: Say) -> None:
        """See `LineStream`."""
        tasks.start_soon(self._listen, say)

    async def _listen(self, say: Say) -> None:
        with self._news.listening() as ear:
            while True:
                event = await ear.next()
                await say(EventLine.model_validate(event.model_dump(exclude_defaults=True)))
