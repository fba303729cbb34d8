"""`redact`: the application's function over every text that leaves the worker.

It runs beside the event loop and is bounded. If it raises or takes too long, the text is
withheld and counted; nothing is ever sent unredacted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel, TypeAdapter

from .models import Partial, Record

__all__ = ["WITHHELD", "Redact", "Redactor"]

logger = logging.getLogger("recall_livekit")

Redact = Callable[[str], str]
"""Takes a text and returns what may be stored of it."""

WITHHELD = "[withheld: redaction failed]"
TEXT_SECONDS = 0.05
"""What each text adds to the bound on a batch."""

_RULES = frozenset(
    {
        "v",
        "at",
        "kind",
        "seq",
        "role",
        "status",
        "action_class",
        "type",
        "message_id",
        "key",
        "ref",
        "result_ref",
    }
)
"""A record's own fields that hold no text of anybody's, and that the rules need."""

_T = TypeVar("_T", bound=BaseModel)
_R = TypeVar("_R")
_records: TypeAdapter[Record] = TypeAdapter(Record)


class Redactor:
    """Applies the application's function, or none."""

    def __init__(self, redact: Redact | None, seconds: float = 1.0) -> None:
        """A batch may take `seconds`, and `TEXT_SECONDS` more for each of its records."""
        self._redact = redact
        self._seconds = seconds
        self.withheld = 0
        """How many texts were withheld because redaction failed."""

    @property
    def redacts(self) -> bool:
        """Whether there is anything to be done."""
        return self._redact is not None

    async def records(
        self, records: Sequence[Record], seconds: float | None = None
    ) -> tuple[Record, ...]:
        """Return the records as they may be stored, within `seconds` if they are given."""
        return await self._all(records, _records.validate_python, seconds)

    async def partials(self, partials: Sequence[Partial]) -> tuple[Partial, ...]:
        """Return the partials as they may be stored."""
        return await self._all(partials, Partial.model_validate)

    async def text(self, text: str) -> str:
        """Return a text as it may be stored."""
        if self._redact is None:
            return text
        redact = self._guarded(self._redact)
        with anyio.move_on_after(self._seconds):
            return await _beside(lambda: redact(text))
        self._count(TimeoutError(f"no answer within {self._seconds:.1f} s"), 1)
        return WITHHELD

    async def _all(
        self, values: Sequence[_T], load: Callable[[Any], _T], seconds: float | None = None
    ) -> tuple[_T, ...]:
        if self._redact is None:
            return tuple(values)
        redact = self._guarded(self._redact)
        if seconds is None:
            seconds = self._seconds + TEXT_SECONDS * len(values)
        with anyio.move_on_after(seconds):
            return await _beside(lambda: tuple(load(_fields(value, redact)) for value in values))
        self._count(TimeoutError(f"no answer within {seconds:.1f} s"), len(values))
        return tuple(load(_fields(value, _withhold)) for value in values)

    def _guarded(self, redact: Redact) -> Redact:
        def guarded(text: str) -> str:
            try:
                redacted = redact(text)
                redacted.encode()  # a str, and one that can be stored
            except BaseException as error:  # also SystemExit: this is a thread of ours
                self._count(error, 1)
                return WITHHELD
            return redacted

        return guarded

    def _count(self, error: BaseException, texts: int) -> None:
        if self.withheld == 0:
            logger.error("redact failed; the text is withheld: %s", type(error).__name__)
        self.withheld += texts


async def _beside(work: Callable[[], _R]) -> _R:
    """Run `work` in a thread that no exit of the process waits for: it may hang for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_R] = loop.create_future()

    def settle(result: _R | None, error: Exception | None) -> None:
        if not done.done():
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="recall-redact", daemon=True).start()
    return await done


def _withhold(text: str) -> str:
    return WITHHELD


def _fields(value: BaseModel, redact: Redact) -> dict[str, Any]:
    """Return a record's fields, every text in them redacted, however deep."""
    fields = value.model_dump()
    return {
        name: inner if name in _RULES else _walk(inner, redact, keys=name != "changes")
        for name, inner in fields.items()
    }


def _walk(value: Any, redact: Redact, *, keys: bool = True) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {
            redact(name) if keys else name: _walk(inner, redact) for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_walk(inner, redact) for inner in value]
    return value
