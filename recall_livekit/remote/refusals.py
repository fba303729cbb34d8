"""What a refusal over HTTP means to whoever asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from pydantic import ValidationError

from ..errors import RecallError, StoreError, StoreUnavailable
from ..problems import MEDIA_TYPE, Problem, error_of, is_of_recall

__all__ = ["Raises", "refusal", "within"]

Raises = tuple[type[RecallError], ...]
"""What the asker of a request knows how to take, beside a `StoreError`."""


def refusal(
    status: int, said: str, headers: Mapping[str, str], content: bytes, raises: Raises
) -> RecallError:
    """Return the error to raise. `said` is the status with its phrase; names of headers are in
    lower case.

    Only what a Recall server says of its own is a verdict on a request: anything else in between
    (a proxy's 413, a gateway's 404) can be mended without us, and is tried again.
    """
    problem = _problem(headers, content)
    if problem is not None and is_of_recall(problem):
        return within(error_of(problem), raises)
    detail = problem.detail if problem else "not from a Recall server"
    if moved := headers.get("location"):
        detail = f"it points to {moved}: write that address"
    status = status if status in (401, 403) else 503
    return error_of(Problem(title=f"answered {said}", status=status, detail=detail))


def within(error: RecallError, raises: Raises) -> RecallError:
    """Return the error if the asker knows it, else that it could not be done."""
    if isinstance(error, (*raises, StoreError)):
        return error
    return StoreUnavailable(f"the server refused the request: {error}")


def _problem(headers: Mapping[str, str], content: bytes) -> Problem | None:
    if headers.get("content-type", "").split(";")[0].strip() == MEDIA_TYPE:
        with suppress(ValidationError):
            return Problem.model_validate_json(content)
    return None
