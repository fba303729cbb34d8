"""A stage is set up once for a module: a scene mends what the one before it broke."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """All that is here needs the server."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.livekit)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stage of a module writes."""
    return tmp_path_factory.mktemp("stage")
