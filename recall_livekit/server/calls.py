"""What is asked of one call: each request is handed to the engine, and its answer back."""

from __future__ import annotations

import logging

from starlette.responses import Response

from ..engine.entries import dump_entry
from ..engine.requests import Acquire, Grant, Reading
from ..stores.keys import call_key
from ..wire import (
    EntriesQuery,
    LeaseRequest,
    OutputAnswer,
    OutputRequest,
    OutputText,
    PartialsAnswer,
    PartialsRequest,
    ReadQuery,
    ReleaseRequest,
    RenewRequest,
    RunAnswer,
    TurnsAnswer,
    TurnsQuery,
)
from .answers import answer
from .route import JSON, Asked, Nothing

__all__ = [
    "acquire",
    "entries",
    "erase",
    "get_output",
    "open_run",
    "put_output",
    "put_partials",
    "read",
    "release",
    "renew",
    "turns",
]

logger = logging.getLogger("recall_livekit.server")

PAGE_CHARS = 4 * 1024 * 1024
"""The most text in one page of turns or entries (one may be longer alone)."""


async def read(asked: Asked[ReadQuery, Nothing]) -> Response:
    """GET /v1/calls/{call_id}."""
    query = asked.query
    reading: Reading = await asked.engine.read(asked.call, query.origin, query.tokens)
    etag = f'W/"{reading.position}"'
    return answer(reading.model_dump_json().encode(), JSON, {"ETag": etag})


async def acquire(asked: Asked[Nothing, LeaseRequest]) -> Grant:
    """POST /v1/calls/{call_id}/lease."""
    engine, call, server = asked.engine, asked.call, asked.server
    before = await engine.summary(call)
    grant = await engine.acquire(call, asked.body)
    server.metrics.granted.inc()
    if grant.epoch > before.epoch:  # else it had been granted before: its answer was lost
        asked.news.tell("taken", call, grant.epoch)
    if before.holder not in (None, asked.body.writer):
        server.metrics.taken_over.inc()
    logger.info("call %s: writer %s holds epoch %d", call_key(call), asked.body.writer, grant.epoch)

    async def finish() -> None:
        await engine.finish_erasure(call)

    server.start(finish, "an erasure that was begun")
    return grant


async def renew(asked: Asked[Nothing, RenewRequest]) -> None:
    """PUT /v1/calls/{call_id}/lease/{epoch}."""
    await asked.engine.renew(asked.call, asked.body.writer, asked.epoch)


async def release(asked: Asked[Nothing, ReleaseRequest]) -> None:
    """POST /v1/calls/{call_id}/lease/{epoch}/release."""
    call, outcome = asked.call, asked.body.outcome
    await asked.engine.release(call, asked.body.writer, asked.epoch, outcome)
    asked.news.tell("released", call, asked.epoch, outcome)


async def open_run(asked: Asked[Nothing, LeaseRequest]) -> RunAnswer:
    """POST /v1/calls/{call_id}/runs."""
    request: Acquire = asked.body
    return RunAnswer(run=await asked.engine.open_run(asked.call, request))


async def put_partials(asked: Asked[Nothing, PartialsRequest]) -> PartialsAnswer:
    """PUT /v1/calls/{call_id}/partials."""
    said = asked.body
    written = await asked.engine.put_partials(asked.call, said.writer, said.run, said.partials)
    return PartialsAnswer(written=written)


async def put_output(asked: Asked[Nothing, OutputRequest]) -> OutputAnswer:
    """PUT /v1/calls/{call_id}/outputs."""
    sent = asked.body
    ref = await asked.engine.put_output(asked.call, sent.writer, sent.counter, sent.text)
    return OutputAnswer(ref=ref)


async def get_output(asked: Asked[Nothing, Nothing]) -> OutputText:
    """GET /v1/calls/{call_id}/outputs/{ref}."""
    return OutputText(ref=asked.ref, text=await asked.engine.get_output(asked.call, asked.ref))


async def turns(asked: Asked[TurnsQuery, Nothing]) -> TurnsAnswer:
    """GET /v1/calls/{call_id}/turns."""
    before = asked.query.before
    asked_for = await asked.engine.turns(asked.call)
    known = [turn for turn in asked_for if before is None or turn.seq < before]
    page, chars = 0, 0
    for turn in reversed(known[-asked.query.limit :]):
        chars += len(turn.content)
        if page and chars > PAGE_CHARS:
            break
        page += 1
    start = len(known) - page
    return TurnsAnswer(turns=tuple(known[start:]), more=start > 0)


async def entries(asked: Asked[EntriesQuery, Nothing]) -> Response:
    """GET /v1/calls/{call_id}/entries: an `EntriesAnswer`, with fewer entries if they are long."""
    start, limit = asked.query.start, asked.query.limit
    page = await asked.engine.entries(asked.call, start, limit)
    told: list[bytes] = []
    size = 0
    for entry in page:
        data = dump_entry(entry)
        size += len(data)
        if told and size > PAGE_CHARS:
            break
        told.append(data)
    return answer(b'{"start":%d,"entries":[%s]}' % (start, b",".join(told)), JSON)


async def erase(asked: Asked[Nothing, Nothing]) -> None:
    """DELETE /v1/calls/{call_id}."""
    await asked.engine.erase(asked.call)
    logger.info("call %s: erased", call_key(asked.call))
