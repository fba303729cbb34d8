"""`FaultyStore`: each fault does what it says, the same seed gives the same ones."""

from __future__ import annotations

from pathlib import Path
from random import Random

import anyio
import pytest

from recall_livekit.errors import Conflict, StoreUnavailable
from recall_livekit.stores.base import Locks
from recall_livekit.stores.memory import MemoryBucket, MemoryStore
from recall_livekit.stores.sqlite import SqliteStore
from recall_livekit.testing.conformance import LockConformance, StoreConformance
from recall_livekit.testing.conformance.peers import Opener
from recall_livekit.testing.faults import Faults, FaultyStore

ALL = Faults(
    drop_request=0.1,
    late_request=0.1,
    drop_answer=0.1,
    duplicate=0.1,
    delay=0.1,
    longest_delay=0.001,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestWithoutFaults(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.bucket = MemoryBucket()

    def open_store(self) -> FaultyStore:
        return FaultyStore(MemoryStore(self.bucket), Random(0))

    def contains(self, content: bytes) -> bool:
        return self.bucket.contains(content)


class TestLocksAreForwarded(LockConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def open_store(self) -> FaultyStore:
        return FaultyStore(SqliteStore(self.directory), Random(0), ALL)

    def opener(self) -> Opener:
        directory = self.directory
        return _Opener(directory)


class _Opener:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self) -> SqliteStore:
        return SqliteStore(self.directory)


def test_it_has_locks_if_and_only_if_the_inner_store_has(tmp_path: Path) -> None:
    assert not isinstance(FaultyStore(MemoryStore(), Random(0)), Locks)
    assert isinstance(FaultyStore(SqliteStore(tmp_path), Random(0)), Locks)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("faults", "written"),
    [
        (Faults(drop_request=1), False),
        (Faults(late_request=1), False),
        (Faults(drop_answer=1), True),
        (Faults(drop_answer=1, duplicate=1), True),
    ],
)
async def test_a_lost_request_or_answer_is_unavailable(faults: Faults, written: bool) -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, Random(0), faults)
    with pytest.raises(StoreUnavailable, match="fault"):
        await store.append("call", 0, b"entry")
    assert list(await inner.read("call", 0, 10)) == ([b"entry"] if written else [])


@pytest.mark.anyio
async def test_a_late_request_is_done_before_a_later_one() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, Random(0), Faults(late_request=1))
    with pytest.raises(StoreUnavailable):
        await store.append("call", 0, b"late")
    store.faults = Faults()
    for _ in range(20):
        await store.get_cell("call", "cell")
    assert list(await inner.read("call", 0, 10)) == [b"late"]


@pytest.mark.anyio
async def test_a_doubled_request_answers_what_the_first_did() -> None:
    store = FaultyStore(MemoryStore(), Random(0), Faults(duplicate=1))
    await store.append("call", 0, b"entry")
    version = await store.put_cell("call", "cell", b"1", None)
    await store.put_cell("call", "cell", b"2", version)
    with pytest.raises(Conflict):
        await store.append("call", 0, b"other")
    assert list(await store.read("call", 0, 10)) == [b"entry"]


@pytest.mark.anyio
async def test_while_frozen_requests_hang_until_thawed() -> None:
    store = FaultyStore(MemoryStore(), Random(0))
    store.freeze()
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(store.append, f"call {number}", 0, b"entry")
        await anyio.sleep(0.02)
        assert [call async for call in store.store.calls()] == []
        store.thaw()
    assert len([call async for call in store.calls()]) == 5


@pytest.mark.anyio
async def test_who_is_frozen_for_too_long_is_unavailable_and_nothing_was_done() -> None:
    store = FaultyStore(MemoryStore(), Random(0), timeout=0.02)
    store.freeze()
    with pytest.raises(StoreUnavailable, match="frozen"):
        await store.append("call", 0, b"entry")
    store.thaw()
    assert list(await store.read("call", 0, 10)) == []


async def _trace(seed: int) -> list[str]:
    """Append to one call through faults, as the engine does: the same again until it is seen."""
    store = FaultyStore(MemoryStore(), Random(seed), ALL)
    trace: list[str] = []
    for position in range(100):
        while True:
            try:
                await store.append("call", position, b"%d" % position)
            except StoreUnavailable as error:
                trace.append(str(error))
            except Conflict:
                break
    assert list(await store.store.read("call", 0, 200)) == [b"%d" % n for n in range(100)]
    return trace


@pytest.mark.anyio
async def test_the_same_seed_gives_the_same_faults_and_no_fault_loses_or_doubles() -> None:
    trace = await _trace(7)
    assert len(set(trace)) == 3
    assert trace == await _trace(7)
    assert trace != await _trace(8)
