"""What an operator's tools ask: does it live, is it ready, how does it go, what can be asked."""

from __future__ import annotations

import anyio
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.responses import Response

from ..errors import Closed, StoreUnavailable
from ..models import Value
from .answers import answer
from .route import Asked, Nothing

__all__ = ["METRICS", "Health", "healthz", "metrics", "readyz"]

METRICS = CONTENT_TYPE_LATEST
READY_SECONDS = 1.0
"""A store that does not answer within this makes the server not ready."""


class Health(Value):
    """All is well."""

    status: str = "ok"


async def healthz(asked: Asked[Nothing, Nothing]) -> Health:
    """GET /healthz: the process lives and answers. It asks the store nothing."""
    return Health()


async def readyz(asked: Asked[Nothing, Nothing]) -> Health:
    """GET /readyz: the store answers, and the server is not leaving."""
    if asked.server.draining.is_set():
        raise Closed("this server is leaving: ask another")
    try:
        with anyio.fail_after(READY_SECONDS):
            await asked.server.keys.look()
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {READY_SECONDS:g} s") from None
    return Health()


async def metrics(asked: Asked[Nothing, Nothing]) -> Response:
    """GET /metrics: figures of the process as a whole; keep outsiders off it at the proxy."""
    return answer(asked.server.metrics.text(), METRICS)
