"""Answers as ASGI: a body, nothing, or a problem."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from ..problems import MEDIA_TYPE, Problem

__all__ = ["answer", "problem_answer"]


def answer(body: bytes, media: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a success with a body."""
    return Response(body, media_type=media, headers=headers)


def problem_answer(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Return a problem, with what HTTP wants beside it."""
    extra = dict(headers or {})
    if problem.status == 401:
        extra["WWW-Authenticate"] = 'Bearer realm="recall"'
    if problem.status in (408, 413, 415):
        extra["Connection"] = "close"  # the rest of that body is not waited for
    if problem.status in (429, 503):
        extra["Retry-After"] = "1"
    body = problem.model_dump_json(exclude_none=True).encode()
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=extra)
