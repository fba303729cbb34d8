"""What one app owns: its engines and keys, its background tasks, and whether it is leaving."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from starlette.datastructures import Headers

from ..errors import KeyRefused, RecallError
from ..seams import Clock
from .faults import log_fault
from .keys import KeyInfo, Keys
from .metrics import Metrics
from .namespaces import Namespaces
from .news import News

__all__ = ["KEYLESS", "ServerState"]

logger = logging.getLogger("recall_livekit.server")

KEYLESS = KeyInfo(
    key_id="none", namespace="default", role="admin", name="anybody here", created_at=0.0
)
"""Who asks without a key, on loopback, while there is no key at all."""
_PORT = re.compile(r":[0-9]+$")
LAST_TASKS_SECONDS = 3.0
"""How long a leaving server waits for what it still does in the background."""


class ServerState:
    """Shared by all requests of one app. `running` is its life, entered by the lifespan."""

    def __init__(
        self,
        namespaces: Namespaces,
        keys: Keys,
        *,
        loopback: bool,
        hosts: Collection[str] | None = None,
    ) -> None:
        """`loopback` says that only this machine reaches the server, `hosts` under what names."""
        self.namespaces = namespaces
        self.keys = keys
        self.loopback = loopback
        self.hosts = hosts
        self.metrics = Metrics()
        self.draining = anyio.Event()
        self.openapi = b""
        self._news: dict[str, News] = {}
        self._tasks: TaskGroup | None = None

    @property
    def clock(self) -> Clock:
        """The clock of the engines."""
        return self.namespaces.clock

    def news(self, namespace: str) -> News:
        """Return what tells of the calls of this namespace, and of no other."""
        return self._news.setdefault(namespace, News(self.metrics))

    async def key_of(self, headers: Headers) -> KeyInfo:
        """Return the key of a request.

        Raises:
            KeyRefused: See `Keys.check`.
            StoreUnavailable: The keys cannot be read.
        """
        presented = _presented(headers)
        if presented is None and self.loopback and not await self.keys.any_made():
            self._refuse_pages(headers)
            return KEYLESS
        return await self.keys.check(presented)

    def _refuse_pages(self, headers: Headers) -> None:
        """Without a key, a page in this machine's browser must not get through: it comes from
        elsewhere (Origin), or under a name that was made to point here (Host)."""
        host = _PORT.sub("", headers.get("host", ""))
        if "origin" in headers or not (self.hosts is None or host in self.hosts):
            raise KeyRefused(
                "without a key only programs of this machine are served, under its own name: "
                "make a key with `recall-livekit key create`"
            )

    def drain(self) -> None:
        """Begin to leave: not ready any more, and every stream is told to go elsewhere."""
        self.draining.set()

    def start(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Do `work` in the background, to its end, whatever becomes of the request."""
        if self._tasks is None:
            raise RuntimeError("the app's lifespan was not entered")
        self._tasks.start_soon(self._to_its_end, work, name, name=name)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Own the background tasks; at the end let them finish, within a bound."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self.drain()
                tasks.cancel_scope.deadline = anyio.current_time() + LAST_TASKS_SECONDS
                tasks.cancel_scope.shield = True

    async def _to_its_end(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """One task that fails ends no other."""
        try:
            await work()
        except (RecallError, TimeoutError) as error:
            logger.warning("%s: not done: %s", name, error or "the store does not answer")
        except Exception as error:
            log_fault(error, name)


def _presented(headers: Headers) -> str | None:
    """Return the bearer key of a request, None if it has none."""
    if (given := headers.get("authorization")) is None:
        return None
    scheme, _, key = given.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
