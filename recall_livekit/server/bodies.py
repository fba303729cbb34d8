"""What a request carries, read within limits and turned into values."""

from __future__ import annotations

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import anyio
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from ..errors import InvalidInput, InvalidRecord
from ..models import Value
from ..problems import Problem, problem_of_status
from ..wire import BODY_BYTES

__all__ = ["ClientGone", "Refused", "faults", "parsed_body", "parsed_query", "read_body"]

BODY_SECONDS = 4.0
"""The longest that a body may take to arrive: less than a request may take."""
VALUES = 200_000
"""The most objects and lists in one body: more of them take longer to read than others can wait."""
QUERY_FIELDS = 32
_FIELD = re.compile(r"[a-z_]{1,32}")
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""The strings of a JSON text; one that never ends goes to the end, so that this is linear."""
V = TypeVar("V", bound=Value)


class Refused(Exception):
    """What HTTP itself refuses, before anything of Recall is asked."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.problem: Problem = problem_of_status(status, detail)


class ClientGone(Exception):
    """The client left before it had asked: there is nobody to answer."""


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """Return the whole body.

    Raises:
        Refused: Not JSON by its headers, over `BODY_BYTES`, or too slow.
        ClientGone.
    """
    headers = Headers(scope=scope)
    _check_headers(headers)
    try:
        with anyio.fail_after(BODY_SECONDS):
            body = await _read(receive)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {BODY_SECONDS:g} s") from None
    if _brackets(body) > VALUES and _brackets(_TEXTS.sub(b"", body)) > VALUES:
        raise Refused(413, f"a body has at most {VALUES} objects and lists")
    return body


def _brackets(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[")


def _check_headers(headers: Headers) -> None:
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, "send application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refused(415, "send the body without a content-encoding")
    length = headers.get("content-length", "")
    if length.isdigit() and int(length) > BODY_BYTES:
        raise _too_large()


async def _read(receive: Receive) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > BODY_BYTES:
            raise _too_large()
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large() -> Refused:
    return Refused(413, f"a body has at most {BODY_BYTES} bytes: send fewer records at once")


def parsed_body(model: type[V], body: bytes) -> V:
    """Return the value of a body.

    Raises:
        InvalidRecord: It is not JSON, or not of this form.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidRecord(faults(error)) from None


def parsed_query(model: type[V], query: bytes) -> V:
    """Return the value of a query string; what it does not know is ignored.

    Raises:
        InvalidInput: A field is not of its form.
    """
    try:
        given = parse_qsl(query.decode(), keep_blank_values=True, max_num_fields=QUERY_FIELDS)
        return model.model_validate(dict(given))
    except ValidationError as error:
        raise InvalidInput(faults(error)) from None
    except ValueError:
        raise InvalidInput("the query is not one that a client of Recall sends") from None


def faults(error: ValidationError) -> str:
    """Say what is wrong and where, without a word of what was sent."""
    told = [_told(fault) for fault in error.errors(include_input=False, include_url=False)[:3]]
    more = error.error_count() - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


def _told(fault: Any) -> str:
    where = ".".join(part if _FIELD.fullmatch(part) else "?" for part in map(str, fault["loc"]))
    return f"{where}: {fault['msg']}" if where else str(fault["msg"])
