"""A worker that leaves hands its calls over, and watches only while it takes jobs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from livekit.agents import AgentServer, JobContext
from livekit.agents.job import JobAcceptArguments, RunningJobInfo
from livekit.protocol import agent as agent_proto
from livekit.protocol import models

from recall_livekit.errors import InvalidSettings, RoomsUnavailable
from recall_livekit.livekit.worker import agent_server, draining, watching
from recall_livekit.livekit.worker.agent_server import RecallAgentServer
from recall_livekit.livekit.worker.draining import Draining, LiveJob
from recall_livekit.rooms.livekit_rooms import Dispatched, LiveKitRooms, Member, Room, Unanswered
from recall_livekit.rooms.orders import HAND_OVER, ORDERS, Orders, Pulse

from .line import until

pytestmark = pytest.mark.anyio
JOINED = Orders(standby="joined")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(draining, "LAST_PAUSE", 0.1)
    monkeypatch.setattr(draining, "JOIN_SECONDS", 0.3)
    monkeypatch.setattr(draining, "JOBS_SECONDS", 0.02)


def job(name: str, *, orders: Orders | None = None, dispatch: str | None = None) -> LiveJob:
    return LiveJob(
        id=f"job-{name}",
        identity=f"agent-{name}",
        room=Room(name, f"RM_{name}", 1.0),
        agent_name="support",
        metadata=f"mine-{name}",
        dispatch=dispatch or f"AD_{name}",
        orders=orders or Orders(),
    )


@dataclass
class House:
    """LiveKit's server, and the agents in its rooms, as far as a worker that leaves sees them.

    A dispatch brings a standby into the room after `joins_after` seconds, or is dropped.
    """

    joins_after: float = 0.02
    dropped: int = 0
    takes: bool = True
    down: int = 0
    states: dict[str, Pulse | None] = field(default_factory=dict)
    inside: dict[str, list[Member]] = field(default_factory=dict)
    jobs: list[LiveJob] = field(default_factory=list)
    dispatched: list[tuple[str, str, Orders | None]] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    others: list[Dispatched] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    calling: int = 0
    most_called_at_once: int = 0

    def add(self, job: LiveJob, pulse: Pulse | None) -> LiveJob:
        self.jobs.append(job)
        self.states[job.identity] = pulse
        self.inside.setdefault(job.room.name, [])
        if pulse is not None:
            self.inside[job.room.name].append(Member(job.identity, "agent", 1.0, "support"))
        return job

    def add_standby(self, room: str, identity: str) -> None:
        self.inside[room].append(Member(identity, "agent", 2.0, "support", "joined"))
        self.states[identity] = Pulse(state="standby", standby="joined")

    async def rooms(self, names: Sequence[str] = ()) -> list[Room]:
        return [Room(name, f"RM_{name}", 1.0) for name in names if name not in self.closed]

    async def members(self, room: str) -> list[Member]:
        if self.down:
            self.down -= 1
            raise RoomsUnavailable("it is down")
        return list(self.inside[room])

    async def dispatches(self, room: str) -> list[Dispatched]:
        return self.others

    async def ask(self, room: str, identity: str, *, seconds: float) -> Pulse | None:
        return self.states.get(identity)

    async def perform(
        self, room: str, identity: str, method: str, payload: str = "", *, seconds: float
    ) -> str:
        assert method == HAND_OVER
        pulse = self.states.get(identity)
        if pulse is None:
            raise Unanswered("it is gone")
        if pulse.state != "holding":
            return "successor" if pulse.state == "standby" else "kept"
        self.told.append(identity)
        await anyio.sleep(0.01)
        standbys = [one for one in self.inside[room] if one.standby == "joined"]
        if not self.takes or not standbys:
            return "kept"
        self.states[identity] = None
        self.jobs[:] = [one for one in self.jobs if one.identity != identity]
        return "handed over"

    async def dispatch(
        self, room: Room, agent_name: str, *, metadata: str = "", orders: Orders | None = None
    ) -> str:
        self.dispatched.append((room.name, metadata, orders))
        self.calling += 1
        self.most_called_at_once = max(self.most_called_at_once, self.calling)
        name = f"successor-{len(self.dispatched)}"
        if len(self.dispatched) > self.dropped:
            asyncio.get_running_loop().call_later(self.joins_after, self._join, room.name, name)
        else:
            self.calling -= 1
        return f"AD_{name}"

    def _join(self, room: str, identity: str) -> None:
        self.calling -= 1
        self.add_standby(room, identity)

    async def evict(self, room: str, identity: str) -> None:
        self.evicted.append(identity)

    async def aclose(self) -> None:
        raise AssertionError("its rooms are closed by who opened them")

    async def withdraw(self, room: str, dispatch: str) -> None:
        self.withdrawn.append(dispatch)
        self.jobs[:] = [one for one in self.jobs if one.dispatch != dispatch]


HOLDING = Pulse(state="holding", epoch=1)


@asynccontextmanager
async def leaving(house: House) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Draining(house, lambda: list(house.jobs)).run)
        yield
        tasks.cancel_scope.cancel()


async def left(house: House, seconds: float = 3.0) -> None:
    """The worker leaves; returns when it has no job."""
    async with leaving(house):
        await until(lambda: not house.jobs, seconds)


# --- one call -----------------------------------------------------------------------------------


async def test_a_successor_is_called_told_and_given_the_call() -> None:
    house = House()
    house.add(job("a"), HOLDING)
    await left(house)
    successor = Orders(resume=True, standby="joined", handover=True)
    assert house.dispatched == [("a", "mine-a", successor)]
    assert house.told == ["agent-a"]
    assert house.withdrawn == house.evicted == []


async def test_a_standby_that_waits_in_the_room_already_is_the_successor() -> None:
    house = House()
    house.add(job("a"), HOLDING)
    house.add_standby("a", "standby-of-another-worker")
    await left(house)
    assert house.dispatched == []


async def test_a_standby_outside_of_the_room_is_sent_away_before_it_takes_the_call() -> None:
    following = Orders(standby="following")
    house = House(others=[Dispatched("AD_f", "support", "", following), Dispatched("AD_a", "", "")])
    house.add(job("a", orders=following, dispatch="AD_mine"), HOLDING)
    house.others.append(Dispatched("AD_mine", "support", "", following))
    await left(house)
    assert house.withdrawn == ["AD_f"], "not the one by which this very agent came"


async def test_a_dispatch_that_is_dropped_is_withdrawn_and_tried_again() -> None:
    house = House(dropped=2)
    house.add(job("a"), HOLDING)
    await left(house)
    assert len(house.dispatched) == 3
    assert house.withdrawn == ["AD_successor-1", "AD_successor-2"]


async def test_a_call_that_nobody_takes_is_kept_and_tried_again_with_the_same_successor() -> None:
    house = House(takes=False)
    house.add(job("a"), HOLDING)
    async with leaving(house):
        await until(lambda: len(house.told) == 3)
        house.takes = True
        await until(lambda: not house.jobs)
    assert len(house.dispatched) == 1


async def test_no_other_worker_leaves_the_call_alone() -> None:
    house = House(dropped=1000)
    house.add(job("a"), HOLDING)
    async with leaving(house):
        await until(lambda: len(house.dispatched) == 2)
    assert house.told == []
    assert len(house.jobs) == 1


async def test_nothing_is_dispatched_into_a_room_that_is_gone() -> None:
    house = House(closed={"a"})
    house.add(job("a"), HOLDING)
    async with leaving(house):
        await anyio.sleep(0.3)
    assert house.dispatched == []


# --- many, and others ---------------------------------------------------------------------------


async def test_many_calls_at_once_call_one_successor_at_a_time() -> None:
    house = House(joins_after=0.05)
    for number in range(8):
        house.add(job(str(number)), HOLDING)
    await left(house, 5)
    assert len(house.dispatched) == 8
    assert house.most_called_at_once == 1


async def test_a_job_that_begins_while_the_worker_leaves_is_handed_over_too() -> None:
    house = House()
    house.add(job("a"), HOLDING)
    async with leaving(house):
        await until(lambda: not house.jobs)
        house.add(job("late"), HOLDING)
        await until(lambda: not house.jobs)


@pytest.mark.parametrize(
    ("orders", "pulse"),
    [
        (JOINED, Pulse(state="standby", standby="joined")),
        (Orders(standby="following"), None),
        (Orders(), Pulse(state="standby")),
        (Orders(), Pulse(state="read_only")),
    ],
)
async def test_its_own_standbys_end(orders: Orders, pulse: Pulse | None) -> None:
    house = House()
    house.add(job("a", orders=orders), pulse)
    await left(house)
    assert house.withdrawn == ["AD_a"]
    assert house.evicted == ["agent-a"]
    assert house.dispatched == []


async def test_a_standby_that_acts_is_an_agent_like_any_other() -> None:
    house = House()
    house.add(job("a", orders=JOINED), HOLDING)
    await left(house)
    assert house.told == ["agent-a"]


@pytest.mark.parametrize("pulse", [Pulse(state=""), Pulse(state="closed"), None])
async def test_what_is_not_ours_or_does_not_answer_is_left_to_livekit(pulse: Pulse | None) -> None:
    house = House()
    house.add(job("a"), pulse)
    async with leaving(house):
        await anyio.sleep(0.3)
    assert (house.dispatched, house.withdrawn, house.told) == ([], [], [])


async def test_an_agent_that_is_only_beginning_is_waited_for() -> None:
    house = House()
    house.add(job("a"), Pulse(state="acquiring"))
    async with leaving(house):
        await anyio.sleep(0.2)
        assert house.dispatched == []
        house.states["agent-a"] = HOLDING
        await until(lambda: not house.jobs)


async def test_livekits_silence_and_a_fault_of_ours_end_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    house = House(down=3)
    house.add(job("a"), HOLDING)
    house.add(job("b"), HOLDING)
    del house.inside["b"]
    async with leaving(house):
        await until(lambda: len(house.jobs) == 1)
        house.inside["b"] = []
        await until(lambda: not house.jobs)
    assert "not handed over yet" in caplog.text
    assert "handing its call over failed" in caplog.text


def test_what_a_running_job_tells() -> None:
    running = RunningJobInfo(
        accept_arguments=JobAcceptArguments(identity="agent-1", name="", metadata=""),
        job=agent_proto.Job(
            id="AJ_1",
            dispatch_id="AD_1",
            agent_name="support",
            metadata="mine",
            room=models.Room(name="a room", sid="RM_1", creation_time=7),
            attributes={ORDERS: json.dumps({"standby": "joined"})},
        ),
        url="",
        token="",
        worker_id="W_1",
        fake_job=False,
    )
    assert LiveJob.of(running) == LiveJob(
        "AJ_1", "agent-1", Room("a room", "RM_1", 7.0), "support", "mine", "AD_1", JOINED
    )


# --- the worker ---------------------------------------------------------------------------------


class Watch:
    """A watcher that notes when it runs."""

    def __init__(self, *, fails: int = 0) -> None:
        self.runs = self.ends = 0
        self.fails = fails

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.fails:
            raise RuntimeError("it cannot")
        try:
            await anyio.sleep_forever()
        finally:
            self.ends += 1


async def entrypoint(ctx: JobContext) -> None:
    """Never called here."""


@asynccontextmanager
async def running(server: RecallAgentServer) -> AsyncIterator[RecallAgentServer]:
    server.rtc_session(entrypoint)
    started = asyncio.Event()
    server.on("worker_started", started.set)
    task = asyncio.create_task(server.run(unregistered=True))
    try:
        await begun(started, task)
        yield server
    finally:
        async with asyncio.timeout(20):
            await server.aclose()
            await task


async def begun(started: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Return when the worker has started; fail as it did if it ended instead."""
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({waiting, task}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.cancel():
        return
    if task.done():
        task.result()
    raise AssertionError("the worker has not started")


def new_server(**options: Any) -> RecallAgentServer:
    return RecallAgentServer(
        host="127.0.0.1", port=0, http_proxy=None, num_idle_processes=0, ws_url="", **options
    )


@pytest.mark.parametrize("made", [False, True], ids=["a watcher", "a function"])
async def test_it_watches_from_its_start_until_it_leaves(made: bool) -> None:
    watch = Watch()
    choice: Callable[[], Watch] | Watch = (lambda: watch) if made else watch
    async with running(new_server(watcher=choice)) as server:
        await until(lambda: watch.runs == 1)
        await server.drain()
        assert (watch.runs, watch.ends) == (1, 1), "other workers' watchers see its calls"
    assert watch.runs == 1


async def test_it_stops_watching_when_it_is_closed_without_draining() -> None:
    watch = Watch()
    async with running(new_server(watcher=watch)):
        await until(lambda: watch.runs == 1)
    assert watch.ends == 1


async def test_a_watcher_that_fails_is_begun_again_and_ends_no_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "RESTART_SECONDS", 0.05)
    watch = Watch(fails=2)
    async with running(new_server(watcher=watch)):
        await until(lambda: watch.runs == 3)
    assert caplog.text.count("the watcher failed") == 2


class Made(Watch):
    made: list[tuple[Any, dict[str, Any]]]

    def __init__(self, recall: Any, **options: Any) -> None:
        super().__init__()
        self.made.append((recall, options))


@pytest.mark.parametrize("choice", [True, {"standby": "joined"}, False])
async def test_it_makes_its_own_watcher(
    choice: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("RECALL_URL", f"sqlite:///{tmp_path / 'records'}")
    monkeypatch.setattr("recall_livekit.watcher.Watcher", Made)
    for name in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.setenv(name, "ws://127.0.0.1:1")
    Made.made = []
    async with running(new_server(watcher=choice)):
        await anyio.sleep(0.1)
    options = [options for _, options in Made.made]
    assert all(isinstance(one.pop("rooms"), LiveKitRooms) for one in options)  # the worker's own
    assert options == ([] if choice is False else [{} if choice is True else choice])


async def test_whoever_serves_rooms_says_who_is_to_come() -> None:
    with pytest.raises(InvalidSettings, match="agent_name"):
        new_server(watcher={"serve_rooms": lambda room: True})


@pytest.fixture
def a_job(monkeypatch: pytest.MonkeyPatch) -> House:
    """A job that LiveKit waits for, on a worker that leaves."""
    house = House()
    house.add(job("a"), HOLDING)

    async def drain(self: Any, timeout: Any = None) -> None:
        self._draining = True
        async with asyncio.timeout(timeout or None):
            while house.jobs:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    monkeypatch.setattr(AgentServer, "drain", drain)
    monkeypatch.setattr(RecallAgentServer, "_live_jobs", lambda self: list(house.jobs))
    monkeypatch.setattr(agent_server, "LiveKitRooms", lambda *_: Closing(house))
    return house


class Closing:
    def __init__(self, house: House) -> None:
        self._house = house

    def __getattr__(self, name: str) -> Any:
        return getattr(self._house, name)

    async def aclose(self) -> None:
        self._house.closed.add("the connection")


async def test_draining_hands_over_and_returns_once_no_job_is_left(a_job: House) -> None:
    async with running(new_server()) as server:
        with anyio.fail_after(3):
            await server.drain()
    assert a_job.told == ["agent-a"]
    assert "the connection" in a_job.closed


async def test_told_to_wait_it_waits(a_job: House) -> None:
    async with running(new_server(drain="wait")) as server:
        with pytest.raises(TimeoutError):
            await server.drain(timeout=0.3)  # type: ignore[arg-type]
    assert a_job.dispatched == []


async def test_a_drain_that_takes_too_long_leaves_nothing_behind(a_job: House) -> None:
    a_job.takes = False
    async with running(new_server()) as server:
        with pytest.raises(TimeoutError):
            await server.drain(timeout=0.5)  # type: ignore[arg-type]
        told = len(a_job.told)
        await anyio.sleep(0.3)
        assert len(a_job.told) == told
        assert "the connection" in a_job.closed


async def test_a_worker_without_a_key_to_livekit_waits(
    a_job: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from recall_livekit.rooms.livekit_rooms import LiveKitRooms

    monkeypatch.setattr(agent_server, "LiveKitRooms", LiveKitRooms)
    for name in ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.delenv(name, raising=False)
    caplog.set_level(logging.WARNING)
    async with running(new_server()) as server:
        with pytest.raises(TimeoutError):
            await server.drain(timeout=0.3)  # type: ignore[arg-type]
    assert "waited for, not handed over" in caplog.text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"watcher": {"stanby": "joined"}}, "stanby"),
        ({"watcher": {"fallback_agent": ""}}, "fallback_agent"),
        ({"watcher": "yes"}, "yes"),
        ({"drain": "fast"}, "fast"),
    ],
)
async def test_absurd_options_are_refused_at_once(options: Any, named: str) -> None:
    with pytest.raises(InvalidSettings, match=named):
        new_server(**options)


async def test_on_livekit_cloud_it_does_not_watch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Cloud brings dead agents back by itself: a watcher would bring a second one."""
    monkeypatch.setenv("RECALL_URL", f"sqlite:///{tmp_path / 'records'}")
    monkeypatch.setenv("LIVEKIT_URL", "wss://mine.livekit.cloud")
    for name in ("LIVEKIT_API_KEY", "LIVEKIT_API_SECRET"):
        monkeypatch.setenv(name, "a" * 32)
    monkeypatch.setattr("recall_livekit.watcher.Watcher", Made)
    Made.made = []
    async with running(new_server(watcher=True)):
        await anyio.sleep(0.1)
    assert Made.made == []
    assert "does not watch" in caplog.text
