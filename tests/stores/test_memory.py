"""`MemoryStore`, and `ObjectStore` on buckets that are less kind than that."""

from __future__ import annotations

import hashlib

import anyio
import pytest

from recall_livekit.errors import StoreUnavailable
from recall_livekit.stores.base import Locks
from recall_livekit.stores.memory import MemoryBucket, MemoryStore
from recall_livekit.stores.objects import ObjectStore
from recall_livekit.testing.conformance import StoreConformance


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestMemoryStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.bucket = MemoryBucket()

    def open_store(self) -> MemoryStore:
        return MemoryStore(self.bucket)

    def contains(self, content: bytes) -> bool:
        return self.bucket.contains(content)


class ContentEtags(MemoryBucket):
    """As S3 does it: the same content has the same etag again."""

    def etag(self, data: bytes) -> str:
        return hashlib.md5(data, usedforsecurity=False).hexdigest()


class TestEtagsThatComeAgain(TestMemoryStore):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.bucket = ContentEtags()


class CountingBucket(MemoryBucket):
    def __init__(self) -> None:
        super().__init__()
        self.gets = 0

    async def get(self, name: str) -> tuple[bytes, str] | None:
        self.gets += 1
        return await super().get(name)


class SilentBucket(MemoryBucket):
    async def create(self, name: str, data: bytes) -> str:
        await anyio.sleep_forever()
        raise AssertionError


def test_it_has_no_locks() -> None:
    assert not isinstance(MemoryStore(), Locks)


@pytest.mark.anyio
async def test_an_append_looks_for_its_predecessor_once_a_process() -> None:
    bucket = CountingBucket()
    store, other = ObjectStore(bucket), ObjectStore(bucket)
    for position in range(10):
        await store.append("call", position, b"entry")
    assert bucket.gets == 0
    for position in range(10, 20):
        await other.append("call", position, b"entry")
    assert bucket.gets == 1


@pytest.mark.anyio
async def test_a_bucket_that_does_not_answer_is_unavailable() -> None:
    store = MemoryStore(SilentBucket(), timeout=0.05)
    with anyio.fail_after(2), pytest.raises(StoreUnavailable, match="outcome unknown"):
        await store.append("call", 0, b"entry")


@pytest.mark.anyio
async def test_a_call_whose_first_append_was_cut_short_is_not_listed() -> None:
    bucket = MemoryBucket()
    store = MemoryStore(bucket)
    await store.append("call", 0, b"entry")
    half = MemoryBucket()
    for name in [name async for name in bucket.list("ids/")]:
        found = await bucket.get(name)
        assert found is not None
        await half.create(name, found[0])
    cut_short = MemoryStore(half)
    assert [call async for call in cut_short.calls()] == []
    await cut_short.append("call", 0, b"entry")
    assert [call async for call in cut_short.calls()] == ["call"]
