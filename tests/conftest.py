from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("recall_livekit.testing.conformance")

from recall_livekit import Recall, Settings  # noqa: E402
from recall_livekit.engine.engine import Engine  # noqa: E402
from recall_livekit.stores.sqlite import SqliteStore  # noqa: E402
from recall_livekit.testing.faults import FaultyStore  # noqa: E402

OpenRecall = Callable[..., Recall]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def open_recall(tmp_path: Path) -> AsyncIterator[OpenRecall]:
    """Open one more handle on the same records, as another worker would. All are closed."""
    opened: list[Recall] = []

    def open_one(
        *, faults: Callable[[SqliteStore], FaultyStore] | None = None, **settings: Any
    ) -> Recall:
        store = SqliteStore(tmp_path / "records")
        recall = Recall(faults(store) if faults else store, settings=Settings(**settings))
        opened.append(recall)
        return recall

    yield open_one
    for recall in opened:
        await recall.aclose()


def engine_of(recall: Recall) -> Engine:
    """The engine of a handle that has its own."""
    engine = recall._transport
    assert isinstance(engine, Engine)
    return engine
