"""`redact`: the application's function over every text that leaves the worker.

It runs beside the event loop and is bounded. If it raises or takes too long, the text is
withheld and counted; nothing is ever sent unredacted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pydantic import BaseModel, TypeAdapter

from .models import Partial, Record

__all__ = ["WITHHELD", "Redact", "Redactor"]

logger = logging.getLogger("recall_livekit")

Redact = Callable[[str], str]
"""Takes a text and returns what may be stored of it."""

WITHHELD = "[withheld: redaction failed]"
_KEPT = frozenset(
    {"v", "at", "kind", "seq", "role", "key", "status", "action_class", "type", "ref", "message_id"}
)
"""Fields that the application did not write, and that the rules need."""

_T = TypeVar("_T", bound=BaseModel)
_records: TypeAdapter[Record] = TypeAdapter(Record)


class Redactor:
    """Applies the application's function, or none."""

    def __init__(self, redact: Redact | None, seconds: float = 1.0) -> None:
        """`seconds` bounds one batch."""
        self._redact = redact
        self._seconds = seconds
        self.withheld = 0
        """How many texts were withheld because redaction failed."""

    async def records(self, records: Sequence[Record]) -> tuple[Record, ...]:
        """Return the records as they may be stored."""
        return await self._all(records, _records.validate_python)

    async def partials(self, partials: Sequence[Partial]) -> tuple[Partial, ...]:
        """Return the partials as they may be stored."""
        return await self._all(partials, Partial.model_validate)

    async def _all(self, values: Sequence[_T], load: Callable[[Any], _T]) -> tuple[_T, ...]:
        if self._redact is None:
            return tuple(values)
        redact = self._guarded(self._redact)
        with anyio.move_on_after(self._seconds):
            return await anyio.to_thread.run_sync(
                lambda: tuple(load(_walk(value.model_dump(), redact)) for value in values),
                abandon_on_cancel=True,
            )
        self._count(TimeoutError(f"no answer within {self._seconds} s"), len(values))
        return tuple(load(_walk(value.model_dump(), _withhold)) for value in values)

    def _guarded(self, redact: Redact) -> Redact:
        def guarded(text: str) -> str:
            try:
                redacted = redact(text)
            except Exception as error:
                self._count(error, 1)
                return WITHHELD
            if isinstance(redacted, str):
                return redacted
            self._count(TypeError("redact must return a str"), 1)
            return WITHHELD

        return guarded

    def _count(self, error: Exception, texts: int) -> None:
        if self.withheld == 0:
            logger.error("redact failed; the text is withheld: %s", type(error).__name__)
        self.withheld += texts


def _withhold(text: str) -> str:
    return WITHHELD


def _walk(value: Any, redact: Redact, field: str | None = None) -> Any:
    if field in _KEPT:
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _walk(inner, redact, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(inner, redact) for inner in value]
    return value
