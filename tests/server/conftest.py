from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest

from .house import House, house


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """An app over an empty store."""
    async with house(tmp_path / "records") as one:
        yield one


@pytest.fixture
async def admin(home: House) -> httpx.AsyncClient:
    """A client that may do everything in the namespace "default"."""
    return await home.client("admin")
