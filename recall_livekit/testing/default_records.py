"""What `Recall.open()` opens while a test resumes a call: its past, whoever calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

from ..client import Recall

__all__ = ["opens"]

_instead: ContextVar[Callable[[], Recall] | None] = ContextVar("recall_opens", default=None)
_users = 0


@contextmanager
def opens(instead: Callable[[], Recall]) -> Iterator[None]:
    """Have `Recall.open`, with whatever arguments, return `instead()` in this task and in those
    that it starts. Others, and other tests that run at the same time, do not notice."""
    global _users
    before = _instead.get()
    _instead.set(instead)
    _users += 1
    if _users == 1:
        _patch.start()
    try:
        yield
    finally:
        _users -= 1
        if _users == 0:
            _patch.stop()
        _instead.set(before)


_open = Recall.open


def _opened(*address: Any, **options: Any) -> Recall:
    instead = _instead.get()
    return _open(*address, **options) if instead is None else instead()


_patch = patch.object(Recall, "open", _opened)
