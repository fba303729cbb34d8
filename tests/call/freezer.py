"""A store that a test freezes and thaws."""

from __future__ import annotations

from random import Random
from typing import Any

from recall_livekit.testing.faults import FaultyStore


class Freezer:
    """`open_recall(faults=Freezer())`: the store can be frozen, or is `frozen` from the first."""

    def __init__(self, timeout: float = 0.3, *, frozen: bool = False) -> None:
        self.timeout = timeout
        self.frozen = frozen
        self.stores: list[FaultyStore] = []

    def __call__(self, store: Any) -> FaultyStore:
        self.stores.append(FaultyStore(store, Random(1), timeout=self.timeout))
        if self.frozen:
            self.freeze()
        return self.stores[-1]

    def freeze(self) -> None:
        self.stores[-1].freeze()

    def thaw(self) -> None:
        self.stores[-1].thaw()
