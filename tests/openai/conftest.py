from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ..conftest import OpenRecall
from .server import OpenAIServer, openai_server


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """An OpenAI of our own. Whatever it refused fails the test, but for a cancel that came after
    the end of what it was to cancel, which LiveKit's class expects."""
    async with openai_server() as server:
        yield server
    refused = [one.message for one in server.refused if one.code != "response_cancel_not_active"]
    assert refused == []


@pytest.fixture
def open_recall(open_recall: OpenRecall) -> OpenRecall:
    """Records that are waited for: loading the plugin may take longer than `seed_wait`, and what
    an agent says that does not know its call is not what these tests are about."""
    return lambda **options: open_recall(**{"seed_wait": 5.0} | options)
