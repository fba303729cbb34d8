from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .server import OpenAIServer, openai_server


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    """An OpenAI of our own. Whatever it refused fails the test, but for a cancel that came after
    the end of what it was to cancel, which LiveKit's class expects."""
    async with openai_server() as server:
        yield server
    refused = [one.message for one in server.refused if one.code != "response_cancel_not_active"]
    assert refused == []
