from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.register_assert_rewrite("recall_livekit.testing.conformance")

from recall_livekit import Recall, Settings  # noqa: E402
from recall_livekit.engine.engine import Engine  # noqa: E402
from recall_livekit.engine.runs import SameCall  # noqa: E402
from recall_livekit.stores.sqlite import SqliteStore  # noqa: E402
from recall_livekit.testing.faults import FaultyStore  # noqa: E402
from recall_livekit.testing.livekit_server import find_livekit_server  # noqa: E402

from .remote.serving import servers  # noqa: E402

OpenRecall = Callable[..., Recall]
Wire = Literal["embedded", "http"]


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)  # or no child could be interrupted
    config.addinivalue_line("markers", "over_http: runs embedded, and over HTTP to a real server")
    config.addinivalue_line("markers", "embedded(why): in a module that is over_http, it is not")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that opens records does so embedded, and, if it is marked, over HTTP too."""
    if "wire" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker
        both = marked("over_http") and not marked("embedded")
        wires = ["embedded", "http"] if both else ["embedded"]
        metafunc.parametrize("wire", wires, ids=wires if both else [""])


@pytest.hookimpl(trylast=True)  # what other hooks mark counts too
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """What is marked `livekit` is skipped on a machine that has no livekit-server."""
    need_it = [item for item in items if item.get_closest_marker("livekit")]
    try:
        if not need_it or find_livekit_server():
            return
    except FileNotFoundError as error:
        raise pytest.UsageError(f"LIVEKIT_SERVER_BIN: {error}") from None
    for item in need_it:
        item.add_marker(pytest.mark.skip(reason="no livekit-server binary"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers spool to, so that nothing waits for another test."""
    directory = tmp_path / "spool"
    monkeypatch.setenv("RECALL_SPOOL", str(directory))
    return directory


@pytest.fixture
async def open_recall(tmp_path: Path, wire: Wire) -> AsyncIterator[OpenRecall]:
    """Open one more handle on the same records, as another worker would. All are closed.

    Over HTTP they share one server; a handle with faults has one of its own on the same store,
    and they are that server's.
    """
    directory = tmp_path / "records"
    opened: list[Recall] = []
    async with servers() as served:
        shared = served.open(SqliteStore(directory)) if wire == "http" else None

        def open_one(
            *,
            faults: Callable[[SqliteStore], FaultyStore] | None = None,
            same_call: SameCall | None = None,
            **settings: Any,
        ) -> Recall:
            options: dict[str, Any] = {"settings": Settings(**settings), "same_call": same_call}
            store = faults(SqliteStore(directory)) if faults else SqliteStore(directory)
            if shared is None:
                recall = Recall(store, **options)
            else:
                recall = Recall.open(served.open(store) if faults else shared, **options)
            opened.append(recall)
            return recall

        yield open_one
        for recall in opened:
            await recall.aclose()


def transport_of(recall: Recall) -> Any:
    """What a handle asks, whatever it is; a test may put faults in its place."""
    return recall._transport


def engine_of(recall: Recall) -> Engine:
    """The engine of a handle that has its own."""
    engine = recall._transport
    assert isinstance(engine, Engine)
    return engine
