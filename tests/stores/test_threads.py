"""`StoreThread`: every asker is answered in time, whatever the disk does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from recall_livekit.errors import Closed, StoreUnavailable
from recall_livekit.stores import threads
from recall_livekit.stores.jobs import Busy, each
from recall_livekit.stores.threads import StoreThread

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Recorder:
    """A servant that remembers what was done, in the order of doing."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.busy: set[str] = set()

    def serve(
        self, key: str, works: Sequence[Callable[[Recorder], Any]], creates: bool
    ) -> list[Any]:
        if key in self.busy:
            raise Busy("somebody is in the way")
        return each(self, works)

    def close(self) -> None:
        self.done.append("closed")

    def before_fork(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


def noting(what: str) -> Callable[[Recorder], None]:
    return lambda recorder: recorder.done.append(what)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def started(recorder: Recorder, timeout: float = 5.0) -> StoreThread[Recorder]:
    return StoreThread("test", lambda: recorder, timeout)


async def test_a_thread_that_hangs_is_unavailable_in_time(recorder: Recorder) -> None:
    disk = threading.Event()
    thread = started(recorder, 0.1)
    with anyio.fail_after(2):
        with pytest.raises(StoreUnavailable, match="the disk does not answer"):
            await thread.ask("a", lambda _: disk.wait(10))
        with pytest.raises(StoreUnavailable):
            await thread.ask("b", noting("given up"))
    disk.set()
    await thread.aclose()
    assert recorder.done == ["closed"]


async def test_a_key_that_is_busy_holds_up_no_other(recorder: Recorder) -> None:
    recorder.busy.add("a")
    thread = started(recorder)
    async with anyio.create_task_group() as tasks:
        for what in ("a1", "a2"):
            tasks.start_soon(thread.ask, "a", noting(what))
        await anyio.sleep(0.01)
        await thread.ask("b", noting("b"))
        tasks.start_soon(thread.ask, "a", noting("a3"))
        recorder.busy.clear()
    await thread.aclose()
    assert recorder.done == ["b", "a1", "a2", "a3", "closed"]


async def test_what_stays_busy_is_unavailable_and_says_why(recorder: Recorder) -> None:
    recorder.busy.add("a")
    thread = started(recorder, 0.05)
    with pytest.raises(StoreUnavailable, match="somebody is in the way"):
        await thread.ask("a", noting("a"))
    recorder.busy.clear()
    await thread.aclose()
    assert recorder.done == ["closed"]


async def test_the_queue_is_bounded(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "JOBS_WAITING", 3)
    disk, hanging = threading.Event(), anyio.Event()
    thread = started(recorder)
    loop = asyncio.get_running_loop()

    def hang(_: Recorder) -> None:
        loop.call_soon_threadsafe(hanging.set)
        disk.wait(10)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.ask, "a", hang)
        await hanging.wait()
        for what in ("b", "c"):
            tasks.start_soon(thread.ask, what, noting(what))
        await anyio.lowlevel.checkpoint()
        with pytest.raises(StoreUnavailable, match="nothing was done"):
            await thread.ask("d", noting("d"))
        disk.set()
    await thread.aclose()
    assert recorder.done == ["b", "c", "closed"]


async def test_an_unforeseen_error_is_its_askers_and_the_thread_lives(recorder: Recorder) -> None:
    thread = started(recorder)
    with pytest.raises(ZeroDivisionError):
        await thread.ask("a", lambda _: 1 / 0)
    await thread.ask("a", noting("a"))
    await thread.aclose()
    assert recorder.done == ["a", "closed"]


async def test_a_servant_that_cannot_be_had_is_asked_for_again(recorder: Recorder) -> None:
    hires = 0

    def hire() -> Recorder:
        nonlocal hires
        hires += 1
        if hires == 1:
            raise OSError("no disk")
        return recorder

    thread = StoreThread("test", hire, 5.0)
    with pytest.raises(OSError, match="no disk"):
        await thread.ask("a", noting("a"))
    await thread.ask("a", noting("a"))
    await thread.aclose()
    assert recorder.done == ["a", "closed"]


async def test_a_cancelled_wait_is_forgotten(recorder: Recorder) -> None:
    recorder.busy.add("a")
    thread = started(recorder)
    with anyio.move_on_after(0.01):
        await thread.ask("a", noting("a"), endless=True)
    recorder.busy.clear()
    await thread.ask("b", noting("b"))
    await thread.aclose()
    assert recorder.done == ["b", "closed"]


async def test_closing_ends_endless_waits_and_refuses_more(recorder: Recorder) -> None:
    recorder.busy.add("a")
    thread = started(recorder)
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(Closed):
                await thread.ask("a", noting("a"), endless=True)

        tasks.start_soon(wait)
        await anyio.sleep(0.01)
        await thread.aclose()
    with pytest.raises(Closed):
        await thread.ask("b", noting("b"))
