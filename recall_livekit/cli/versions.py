"""Whether a version is in a range such as ``>=1.8.9,<1.9``: as far as our own ranges need it."""

from __future__ import annotations

import operator
import re

__all__ = ["allows"]

_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|>|<|~=)\s*([0-9]+(?:\.[0-9]+)*)")
_HOW = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "~=": operator.ge,
}


def allows(wanted: str, version: str) -> bool:
    """Whether the version is one of the wanted; a pre-release counts as its release."""
    clauses = [match for part in wanted.split(",") if (match := _CLAUSE.match(part))]
    return all(_HOW[one[1]](_numbers(version), _numbers(one[2])) for one in clauses)


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    return tuple([*numbers, 0, 0, 0, 0][:4])
