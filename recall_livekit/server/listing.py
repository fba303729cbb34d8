"""GET /v1/calls: how every call of the namespace stands, one line each as it is found."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse
from starlette.types import ASGIApp

from ..engine.engine import Engine
from ..errors import RecallError
from ..models import Value
from ..problems import problem_of
from ..wire import CallsQuery
from .route import NDJSON, Asked, Nothing

__all__ = ["calls"]


async def calls(asked: Asked[CallsQuery, Nothing]) -> ASGIApp:
    """Stream the summaries."""
    return StreamingResponse(_lines(asked.engine, asked.query.state), media_type=NDJSON)


async def _lines(engine: Engine, state: str | None) -> AsyncIterator[bytes]:
    """A call that cannot be read hides none of the others: the last line tells of it."""
    try:
        async for found in engine.summaries():
            if state in (None, found.state):
                yield _line(found)
    except RecallError as error:
        yield _line(problem_of(error))


def _line(value: Value) -> bytes:
    return value.model_dump_json().encode() + b"\n"
