"""Errors on the wire: RFC 9457 problems, mapped both ways in this one place.

A problem's `type` is ``urn:recall-livekit:problem:`` and the name of the error. What an error
carries beside its text (who holds the call, which number is expected) are members of the problem,
so that a client raises the very error that the server did.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from pydantic import ConfigDict

from .errors import (
    Closed,
    Conflict,
    Erased,
    Fenced,
    Gap,
    Held,
    InvalidCallId,
    InvalidInput,
    InvalidRecord,
    InvalidSettings,
    KeyRefused,
    OutboxFull,
    OutputMissing,
    ReadOnly,
    RecallError,
    RoleTooLow,
    RoomsUnavailable,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    UnknownRun,
)
from .models import Value

__all__ = [
    "MEDIA_TYPE",
    "Problem",
    "error_of",
    "is_of_recall",
    "problem_of",
    "problem_of_status",
    "problem_type",
    "status_of",
]

MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:recall-livekit:problem:"


class Problem(Value):
    """RFC 9457: what went wrong, for a program (`type`) and for a person (`title`, `detail`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    epoch: int | None = None
    holder: str | None = None
    expected: int | None = None
    got: int | None = None


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    again: Callable[[Problem], RecallError]


def _worded(error: type[RecallError]) -> Callable[[Problem], RecallError]:
    return lambda problem: error(problem.detail)


def _read_only(problem: Problem) -> ReadOnly:
    error = ReadOnly(problem.epoch or 0, "")
    error.args = (problem.detail,)
    return error


_KINDS: dict[type[RecallError], _Kind] = {
    RecallError: _Kind(500, _worded(RecallError)),
    InvalidInput: _Kind(400, _worded(InvalidInput)),
    InvalidCallId: _Kind(400, _worded(InvalidCallId)),
    InvalidRecord: _Kind(422, _worded(InvalidRecord)),
    InvalidSettings: _Kind(400, _worded(InvalidSettings)),
    Conflict: _Kind(409, _worded(Conflict)),
    StoreError: _Kind(503, _worded(StoreError)),
    StoreUnavailable: _Kind(503, _worded(StoreUnavailable)),
    StoreUnusable: _Kind(503, _worded(StoreUnusable)),
    KeyRefused: _Kind(401, _worded(KeyRefused)),
    RoleTooLow: _Kind(403, _worded(RoleTooLow)),
    RoomsUnavailable: _Kind(503, _worded(RoomsUnavailable)),
    Held: _Kind(409, lambda problem: Held(problem.holder or "?", problem.epoch or 0)),
    Fenced: _Kind(409, lambda problem: Fenced(problem.epoch or 0, problem.holder)),
    ReadOnly: _Kind(409, _read_only),
    Gap: _Kind(409, lambda problem: Gap(problem.expected or 1, problem.got or 0)),
    Erased: _Kind(410, _worded(Erased)),
    UnknownRun: _Kind(409, _worded(UnknownRun)),
    OutputMissing: _Kind(404, _worded(OutputMissing)),
    OutboxFull: _Kind(429, _worded(OutboxFull)),
    Closed: _Kind(503, _worded(Closed)),
}


def _name(error: type[RecallError]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", error.__name__).lower()


_BY_TYPE = {_PREFIX + _name(error): kind for error, kind in _KINDS.items()}


def problem_type(error: type[RecallError]) -> str:
    """Return the `type` of this error's problem."""
    return _PREFIX + _name(error)


def status_of(error: type[RecallError]) -> int:
    """Return the HTTP status of this error's problem."""
    return _KINDS[error].status


def problem_of(error: RecallError) -> Problem:
    """Return the problem of this error; a class that is not listed is told as its base."""
    known = next(kind for kind in type(error).__mro__ if kind in _KINDS)
    return Problem(
        type=_PREFIX + _name(known),
        title=re.sub(r"(?<!^)(?=[A-Z])", " ", known.__name__).capitalize(),
        status=_KINDS[known].status,
        detail=str(error),
        epoch=getattr(error, "epoch", None),
        holder=getattr(error, "holder", None),
        expected=getattr(error, "expected", None),
        got=getattr(error, "got", None),
    )


def problem_of_status(status: int, detail: str) -> Problem:
    """Return the problem of what HTTP itself refuses (404, 405, 408, 413, 415): it is no error
    of Recall and has no type of its own, as RFC 9457 has it."""
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)


def is_of_recall(problem: Problem) -> bool:
    """Whether a Recall server says this of its own, be it newer than this version: gateways send
    problems too, and `problem_of_status` ones are no verdict on what was asked."""
    return problem.type.startswith(_PREFIX)


def error_of(problem: Problem) -> RecallError:
    """Return the error that the problem tells of.

    A type that this version does not know is told by its status: what a client cannot mend by
    waiting is an `InvalidInput`, all else is `StoreUnavailable`, and is tried again.
    """
    if problem.type in _BY_TYPE:
        return _BY_TYPE[problem.type].again(problem)
    text = f"{problem.title}: {problem.detail}" if problem.detail else problem.title
    if problem.status in (401, 403):
        return KeyRefused(text)
    hopeless = 400 <= problem.status < 500 and problem.status not in (404, 408, 425, 429)
    return InvalidInput(text) if hopeless else StoreUnavailable(text)
