"""The rules of the chain, on both kinds of store."""

from pathlib import Path

import pytest

from recall_livekit.stores.memory import MemoryBucket, MemoryStore
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.conformance import RulesConformance

from ..files import contains


class TestRulesOnObjects(RulesConformance):
    @pytest.fixture
    def place(self) -> None:
        self.bucket = MemoryBucket()

    def open_store(self) -> MemoryStore:
        return MemoryStore(self.bucket)

    def contains(self, content: bytes) -> bool:
        return self.bucket.contains(content)


class TestRulesOnSqlite(RulesConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "records"

    def open_store(self) -> SqliteStore:
        return SqliteStore(self.directory)

    def contains(self, content: bytes) -> bool:
        return contains(self.directory, content)
