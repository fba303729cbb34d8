"""One path of the API: who asks may, what is asked is parsed, and every end is an answer."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import anyio
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import RecallError, StoreUnavailable
from ..models import Value
from ..problems import Problem, problem_of
from .answers import answer, problem_answer
from .bodies import ClientGone, Refused, parsed_body, parsed_query, read_body
from .faults import log_fault
from .keys import KeyInfo
from .route import Asked, Nothing, Route, adapter_of
from .state import KEYLESS, ServerState

__all__ = ["Resource"]

logger = logging.getLogger("recall_livekit.server")

_NOTHING = Nothing()


class Resource:
    """The routes of one path, by method."""

    def __init__(self, server: ServerState, routes: Sequence[Route[Any, Any]]) -> None:
        """Answer for `server`; all `routes` have the same path."""
        self._server = server
        self._doors = {route.method: _Door(server, route) for route in routes}
        self._allowed = ", ".join(sorted(self._doors))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        door = self._doors.get(scope["method"])
        if door is None:
            refused = Refused(405, f"{scope['method']} is not a method of this path")
            response = problem_answer(refused.problem, {"Allow": self._allowed})
            self._server.metrics.answered("none", 405, 0.0)
            await response(scope, receive, send)
        else:
            await door(scope, receive, send)


class _Door:
    """One route, with what it needs made once."""

    def __init__(self, server: ServerState, route: Route[Any, Any]) -> None:
        self._server = server
        self._route = route
        self._adapter: TypeAdapter[Any] | None = adapter_of(route.answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        try:
            response = await self._response(scope, receive)
        except ClientGone:
            return
        status = getattr(response, "status_code", self._route.status)
        self._server.metrics.answered(self._route.name, status, perf_counter() - began)
        try:
            await response(scope, receive, send)
        except Exception as error:  # the answer has begun: it ends here, and the client sees it cut
            log_fault(error, self._route.name)

    async def _response(self, scope: Scope, receive: Receive) -> ASGIApp:
        try:
            with anyio.fail_after(self._route.seconds):
                return self._dressed(await self._handled(scope, receive))
        except RecallError as error:
            return self._refusal(problem_of(error))
        except Refused as refused:
            return self._refusal(refused.problem)
        except TimeoutError:
            return self._refusal(problem_of(StoreUnavailable(self._too_slow)))
        except ClientGone:
            raise
        except Exception as error:
            log_fault(error, self._route.name)
            return self._refusal(problem_of(RecallError("a fault of the server: see its log")))

    async def _handled(self, scope: Scope, receive: Receive) -> Value | ASGIApp | None:
        route = self._route
        key = await self._key(scope)
        query = body = _NOTHING
        raw = b""
        if route.query is not Nothing:
            query = parsed_query(route.query, scope["query_string"])
        if route.body is not Nothing:
            raw = await read_body(scope, receive)
            body = parsed_body(route.body, raw) if route.parsed else _NOTHING
        path: Mapping[str, str] = scope["path_params"]
        return await route.handler(Asked(self._server, key, path, query, body, raw))

    async def _key(self, scope: Scope) -> KeyInfo:
        if self._route.role is None:
            return KEYLESS
        key = await self._server.key_of(Headers(scope=scope))
        key.require(self._route.role)
        return key

    def _dressed(self, answered: Value | ASGIApp | None) -> ASGIApp:
        if answered is None:
            return Response(status_code=204)
        if isinstance(answered, Value) and self._adapter is not None:
            return answer(self._adapter.dump_json(answered), self._route.media)
        assert not isinstance(answered, Value)
        return answered

    def _refusal(self, problem: Problem) -> Response:
        self._server.metrics.problems.labels(problem.type.rpartition(":")[2]).inc()
        if problem.status == 503:
            logger.warning("%s: %s: %s", self._route.name, problem.title, problem.detail)
        return problem_answer(problem)

    @property
    def _too_slow(self) -> str:
        return f"no answer within {self._route.seconds:g} s: its outcome is unknown, ask again"
