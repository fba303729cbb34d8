"""Shipped for tests: a call loaded at any moment (`resumed`), fakes, faults, the conformance suite.

Importing this is light: LiveKit is imported where `resumed` is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .past import Past
    from .replay import Resumed, resumed

__all__ = ["Past", "Resumed", "resumed"]

_HOMES = {"Past": "past", "Resumed": "replay", "resumed": "replay"}


def __getattr__(name: str) -> object:
    """Import a public name where it lives, at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
