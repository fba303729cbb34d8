"""The ASGI app: the table of routes over the engines of one store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import groupby

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from .answers import problem_answer
from .bodies import Refused
from .keys import Keys
from .namespaces import Namespaces
from .openapi import described
from .resource import Resource
from .routes import ROUTES
from .state import ServerState

__all__ = ["create_app"]


def create_app(
    namespaces: Namespaces,
    keys: Keys,
    *,
    loopback: bool = False,
    hosts: Collection[str] | None = None,
) -> Starlette:
    """Return the app. Its lifespan owns the background work, and must be entered; closing the
    stores is the caller's.

    `loopback` says that only this machine reaches it: then, while no key was ever made, anybody
    may do anything in the namespace "default", if it asks under one of the names `hosts` (any,
    if None). `app.state.server` is its `ServerState`.
    """
    server = ServerState(namespaces, keys, loopback=loopback, hosts=hosts)
    server.openapi = described(ROUTES, version("recall-livekit"))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with server.running():
            yield

    by_path = sorted(ROUTES, key=lambda route: route.path)
    routes = [
        StarletteRoute(path, Resource(server, list(group)))
        for path, group in groupby(by_path, key=lambda route: route.path)
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: _not_found})
    app.router.redirect_slashes = False
    app.state.server = server
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    return problem_answer(Refused(404, "there is nothing at this path: see /openapi.json").problem)
