"""What a mutant is, the odds that bring it out, and all of them by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from .odds import Odds

__all__ = ["ERASING", "LATE_OUTPUTS", "MUTANTS", "RACING", "SPOOLING", "STORMY", "Mutant", "mutant"]

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken rule, and a world in which that shows."""

    rule: str
    patch: Patch
    odds: Odds


STORMY = Odds(spool=0.0, bad_weather=1.0, fault=0.15, breaks=0.0)
ERASING = replace(STORMY, bad_weather=0.8, erase=0.4, new_room=0.2)
LATE_OUTPUTS = replace(ERASING, outputs=1.0, erase=0.9, bad_weather=0.2, stop=0.8)
"""Writers of outputs stand still, and do not hear of an erasure until it is done."""
RACING = Odds(
    spool=0.0,
    bad_weather=0.0,
    workers=4,
    idle=0.05,
    life=1.0,
    fuse=0.0,
    steal=0.0,
    breaks=0.0,
    erase=0.0,
)
"""Several are there when one leaves, and all want the call at once."""
SPOOLING = Odds(spool=1.0, outage=0.4, drainer=0.8, bad_weather=0.6)
"""The store is away now and then, and much is spooled."""
MUTANTS: dict[str, Mutant] = {}


def mutant(rule: str, odds: Odds = STORMY) -> Callable[[Patch], Patch]:
    def add(patch: Patch) -> Patch:
        MUTANTS[patch.__name__.replace("_", " ")] = Mutant(rule, patch, odds)
        return patch

    return add
