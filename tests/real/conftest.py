"""A stage is set up once for a module: a scene mends what the one before it broke."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from .server import find_server

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """All that is here needs the server."""
    missing = pytest.mark.skipif(find_server() is None, reason="no livekit-server binary")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.livekit)
            item.add_marker(missing)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the stage of a module writes."""
    return tmp_path_factory.mktemp("stage")
