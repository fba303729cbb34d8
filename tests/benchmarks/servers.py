"""A Recall server, and a bare Starlette route on the same uvicorn, each in a process of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_livekit.server.options import ServeOptions
from recall_livekit.server.serve import run

from .children import Child, child, tell
from .recorded import url_of


@asynccontextmanager
async def recall_server(records: Path) -> AsyncIterator[tuple[int, Child]]:
    """A server of these records: its port, and its process."""
    async with child(records.parent, serve_records, records) as process:
        yield int(await process.told("port")), process


@asynccontextmanager
async def bare_server(directory: Path) -> AsyncIterator[tuple[int, Child]]:
    """A server that reads a body and answers with a constant."""
    async with child(directory, serve_bare) as process:
        yield int(await process.told("port")), process


def serve_records(records: str) -> None:
    """In the child: the product's own server."""
    options = ServeOptions(store_url=url_of(Path(records)), port=0)
    run(options, listening=lambda server: tell("port", int(server.url.rpartition(":")[2])))


def serve_bare() -> None:
    """In the child: what HTTP alone costs."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    tell("port", listening.getsockname()[1])
    app = Starlette(routes=[Route("/", _answer, methods=["POST"])])
    config = uvicorn.Config(app, http="httptools", loop="uvloop", ws="none", log_config=None)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(uvicorn.Server(config).serve([listening]))


async def _answer(request: Request) -> Response:
    await request.body()
    return Response(b'{"answers":[{"ack":{"last":1,"position":1}}]}')
