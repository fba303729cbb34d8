"""What a route is: one row of the table, from which requests are answered and OpenAPI is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from starlette.types import ASGIApp

from ..call_ids import decode_call_id
from ..engine.engine import Engine
from ..errors import InvalidInput, RecallError
from ..models import Value
from .keys import KeyInfo, Role
from .news import News
from .state import ServerState

__all__ = ["JSON", "NDJSON", "Asked", "Nothing", "Route"]

JSON = "application/json"
NDJSON = "application/x-ndjson"
EPOCHS = 2**53

Q = TypeVar("Q", bound=Value)
B = TypeVar("B", bound=Value)


class Nothing(Value):
    """The query or body of a route that has none."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q, B]):
    """One request as its handler sees it: who asks, and what, within its limits."""

    server: ServerState
    key: KeyInfo
    path: Mapping[str, str]
    query: Q
    body: B
    raw: bytes = field(default=b"", repr=False)

    @property
    def engine(self) -> Engine:
        """The engine of the key's namespace: there is no way to another one."""
        return self.server.namespaces.engine(self.key.namespace)

    @property
    def news(self) -> News:
        """What tells of the calls of the key's namespace."""
        return self.server.news(self.key.namespace)

    @property
    def call(self) -> str:
        """The call that the path names.

        Raises:
            InvalidCallId: It is not an encoded call id.
        """
        return decode_call_id(self.path["call_id"])

    @property
    def epoch(self) -> int:
        """The epoch that the path names.

        Raises:
            InvalidInput: It is no epoch.
        """
        return self._number("epoch")

    @property
    def ref(self) -> str:
        """The ref of the output that the path names.

        Raises:
            InvalidInput: It is none.
        """
        return f"{self._number('anchor')}/{self._number('counter')}"

    def _number(self, name: str) -> int:
        text = self.path[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= EPOCHS):
            raise InvalidInput(f"{name} is a number from 0 to 2**53")
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[Q, B]):
    """One method of one path. `role` None: anybody may ask, without a key."""

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[Asked[Q, B]], Awaitable[Value | ASGIApp | None]]
    role: Role | None
    query: type[Q]
    body: type[B]
    answer: Any = None
    """The type of the answer's body; None: there is none, and the status is 204."""
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer, each with its description."""
    raises: tuple[type[RecallError], ...] = ()
    """Beside what any route may raise."""
    seconds: float = 5.0
    """The longest that an answer takes; a stream: that it takes to begin."""
    parsed: bool = True
    """Whether the body is parsed for the handler; else it gets it raw."""

    @property
    def status(self) -> int:
        """The status of its success."""
        return 204 if self.answer is None else 200


def adapter_of(answer: Any) -> TypeAdapter[Any] | None:
    """Return what writes an answer of this type: made once, it is slow to make."""
    return None if answer is None else TypeAdapter(answer)
