"""One engine per namespace, opened when it is first asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..engine.engine import Engine
from ..engine.tokens import Estimator, TiktokenCounter, TokenCounter
from ..errors import InvalidSettings
from ..seams import Clock, SystemClock
from ..settings import Settings
from ..stores.base import Store
from ..stores.opening import check_namespace, open_store

__all__ = ["SYSTEM_NAMESPACE", "Namespaces"]

logger = logging.getLogger("recall_livekit.server")

SYSTEM_NAMESPACE = "recall-system"
"""Reserved: the server's own data, the keys among it. No key opens it."""


class Namespaces:
    """The engines of one store address. All calls of a namespace in this process share one."""

    def __init__(
        self,
        store_url: str,
        settings: Settings | None = None,
        clock: Clock | None = None,
        *,
        opened: Callable[[str, str], Store] = open_store,
    ) -> None:
        """Open nothing yet; `opened` gives the store of an address and a namespace.

        Raises:
            InvalidSettings: The address names no store of this version.
        """
        self.store_url = store_url
        self.settings = settings or Settings()
        self.clock = clock or SystemClock()
        self._opened = opened
        self._counter = _counter()
        self._engines: dict[str, Engine] = {}

    def engine(self, namespace: str) -> Engine:
        """Return the namespace's engine.

        Raises:
            InvalidSettings: It is no name of a namespace, or the reserved one.
        """
        engine = self._engines.get(namespace)
        if engine is None:
            if check_namespace(namespace) == SYSTEM_NAMESPACE:
                raise InvalidSettings(f"the namespace {SYSTEM_NAMESPACE} is the server's own")
            store = self._opened(self.store_url, namespace)
            engine = Engine(store, self.clock, self.settings, counter=self._counter)
            self._engines[namespace] = engine
        return engine

    async def aclose(self) -> None:
        """Close every store that was opened; one that fails keeps none of the others open."""
        failed: list[Exception] = []
        while self._engines:
            _, engine = self._engines.popitem()
            try:
                await engine.aclose()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]


def _counter() -> TokenCounter:
    """Count with tiktoken where its table is, which a server can afford; else estimate."""
    try:
        return TiktokenCounter()
    except InvalidSettings as error:
        logger.info("briefings are measured by estimate: %s", error)
        return Estimator()
