"""Tool calls as an application marks and settles them. Nothing here knows LiveKit."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, get_args

from .errors import InvalidInput
from .models import Action, ActionClass

__all__ = [
    "Begun",
    "IfUnrecorded",
    "Mark",
    "Resolved",
    "Resolver",
    "action",
    "action_key",
    "mark_of",
    "running_as",
]

logger = logging.getLogger("recall_livekit")

IfUnrecorded = Literal["run", "refuse"]
_T = TypeVar("_T")
_MARK = "_recall_action"
_key: ContextVar[str] = ContextVar("recall_action_key")


@dataclass(frozen=True, slots=True)
class Mark:
    """What `action` says of a tool; the default is what counts for a tool that nobody marked."""

    action_class: ActionClass = "external"
    if_unrecorded: IfUnrecorded = "run"


@dataclass(frozen=True, slots=True)
class Begun:
    """A tool call that is about to run. `durable` says that its beginning was stored under this
    worker's lease: only then does every later worker know that it may have happened."""

    key: str
    durable: bool


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a resolver found out about an open tool call: whether it happened, and its result."""

    status: Literal["done", "failed"]
    result: str | None = None


Resolver: TypeAlias = Callable[[Action], Awaitable[Resolved | None]]
"""Finds out how a tool call went, of which nobody knows whether it happened: asks the payment
provider, say, for the charge of `Action.key`. None leaves it open."""


def action(action_class: ActionClass, *, if_unrecorded: IfUnrecorded = "run") -> Callable[[_T], _T]:
    """Say what happens if a worker dies while this tool runs. Write it above or below LiveKit's
    `@function_tool`, or call it on a tool: ``action("pure")(tool)``.

    Args:
        action_class: "pure": it changes nothing, and is forgotten. "idempotent": it may be called
            again with its `action_key()`; the same call of the model gets the same key again.
            "external": it may have happened, so the next worker is told so; this is the default
            for every tool.
        if_unrecorded: What to do with an external tool whose beginning could not be stored
            within `Settings.action_wait`: "run" it all the same, or "refuse" it with an error
            that the model is told.

    Raises:
        InvalidInput: One of them is not what is listed here.
    """
    if action_class not in get_args(ActionClass):
        raise InvalidInput(f"an action is pure, idempotent or external, not {action_class!r}")
    if if_unrecorded not in get_args(IfUnrecorded):
        raise InvalidInput(f"if_unrecorded is run or refuse, not {if_unrecorded!r}")
    mark = Mark(action_class, if_unrecorded)

    def mark_it(tool: _T) -> _T:
        for inner in _layers(tool):  # LiveKit binds a method's tool anew from the function inside
            try:
                setattr(inner, _MARK, mark)
            except AttributeError:
                raise InvalidInput(f"{inner!r} cannot be marked; mark its function") from None
        return tool

    return mark_it


def mark_of(tool: object) -> Mark:
    """Return what the tool, or the function inside, was marked as."""
    marks = (getattr(inner, _MARK, None) for inner in _layers(tool))
    return next((mark for mark in marks if isinstance(mark, Mark)), Mark())


def _layers(tool: object) -> Iterator[object]:
    inner: object = tool
    while inner is not None:
        yield inner
        inner = getattr(inner, "__wrapped__", None)


def action_key() -> str:
    """Return the key of the tool call that runs now: hand it to whatever drops duplicates, as a
    payment provider does by its idempotency key.

    The same call of the model gets the same key again if its worker died before it was done.
    Outside of a tool call that Recall records (in a test of the tool alone, say) each call gives
    a new key, and a warning says so.
    """
    key = _key.get(None)
    if key is None:
        logger.warning("action_key() outside of a recorded tool call: a repetition is not noticed")
        return secrets.token_hex(8)
    return key


@contextmanager
def running_as(key: str) -> Iterator[None]:
    """Have `action_key` return `key` inside, for a tool that is run by hand."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)
