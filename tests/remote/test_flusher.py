"""One outbox for all calls of a worker: what one call suffers is no matter to the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from recall_livekit.engine.requests import Ack
from recall_livekit.errors import (
    Closed,
    Fenced,
    Gap,
    InvalidRecord,
    RecallError,
    StoreUnavailable,
)
from recall_livekit.models import Turn
from recall_livekit.problems import problem_of
from recall_livekit.remote.flusher import FLIGHT_BYTES, Flusher
from recall_livekit.remote.http import Unreachable
from recall_livekit.wire import BODY_BYTES, UNITS, RecordsAnswer, RecordsUnit, UnitAnswer

pytestmark = pytest.mark.anyio


def unit(writer: str, first: int = 1, text: str = "hello") -> RecordsUnit:
    turn = Turn(at=1.0, role="user", content=text)
    return RecordsUnit(
        call_id=f"call {writer}", writer=writer, first=first, records=(turn,), epoch=1
    )


class Post:
    """A server that keeps what it was sent; a flight is answered when `let` allows it."""

    def __init__(self) -> None:
        self.flights: list[list[str]] = []
        self.flying = 0
        self.most = 0
        self.let = anyio.Event()
        self.let.set()
        self.stuck: set[str] = set()
        self.errors: dict[str, RecallError] = {}
        self.whole: Callable[[list[str]], RecallError | None] = lambda _: None

    async def __call__(self, body: bytes) -> RecordsAnswer:
        units: list[dict[str, Any]] = json.loads(body)["units"]
        writers = [one["writer"] for one in units]
        assert len(set(writers)) == len(writers), "one unit of each writer"
        self.flights.append(writers)
        self.flying += 1
        self.most = max(self.most, self.flying)
        try:
            await self.let.wait()
            while self.stuck & set(writers):  # noqa: ASYNC110
                await anyio.sleep(0.001)
            if (error := self.whole(writers)) is not None:
                raise error
            return RecordsAnswer(answers=tuple(self.answer(one) for one in units))
        finally:
            self.flying -= 1

    def answer(self, one: dict[str, Any]) -> UnitAnswer:
        if (error := self.errors.get(one["writer"])) is not None:
            return UnitAnswer(problem=problem_of(error))
        return UnitAnswer(ack=Ack(last=one["first"] + len(one["records"]) - 1, position=7))


async def together(*waits: Awaitable[object]) -> list[object]:
    return await asyncio.gather(*waits, return_exceptions=True)


@pytest.fixture
def post() -> Post:
    return Post()


async def test_the_next_flight_takes_all_that_waits_and_each_gets_its_own_answer(
    post: Post,
) -> None:
    post.let = anyio.Event()
    post.errors = {"b": Fenced(3, "x"), "c": Gap(5, 1)}
    flusher = Flusher(post)
    sends = [asyncio.create_task(flusher.send(unit(writer))) for writer in "abcd"]
    await anyio.wait_all_tasks_blocked()
    assert post.flights == [["a"]]
    post.let.set()
    a, b, c, d = await together(*sends)
    assert post.flights == [["a"], ["b", "c", "d"]]
    assert a == d == Ack(last=1, position=7)
    assert isinstance(b, Fenced)
    assert (b.epoch, b.holder) == (3, "x")
    assert isinstance(c, Gap)
    assert c.expected == 5
    assert post.most == 1
    await flusher.aclose()


async def test_a_call_that_is_stuck_holds_up_nobody_after_its_first_failure(post: Post) -> None:
    flusher = Flusher(post)
    post.errors = {"stuck": StoreUnavailable("its file does not answer")}
    with pytest.raises(StoreUnavailable):
        await flusher.send(unit("stuck"))
    post.stuck = {"stuck"}
    stuck = asyncio.create_task(flusher.send(unit("stuck")))
    with anyio.fail_after(1):
        for number in range(3):
            await together(*(flusher.send(unit(writer, 1 + number)) for writer in "ab"))
    assert ["stuck"] in post.flights[1:], "on a lane of its own"
    post.stuck, post.errors = set(), {}
    assert (await stuck).last == 1
    post.let = anyio.Event()
    sends = [asyncio.create_task(flusher.send(unit(writer, 9))) for writer in ("x", "a", "stuck")]
    await anyio.wait_all_tasks_blocked()
    post.let.set()
    await together(*sends)
    assert post.flights[-1] == ["a", "stuck"], "it has recovered, and flies with the others"
    await flusher.aclose()


async def test_a_request_without_an_answer_is_tried_again_one_by_one(post: Post) -> None:
    flusher = Flusher(post)
    post.whole = lambda writers: StoreUnavailable("no answer") if "bad" in writers else None
    post.let = anyio.Event()
    first = [asyncio.create_task(flusher.send(unit(writer))) for writer in ("x", "a", "bad")]
    await anyio.wait_all_tasks_blocked()
    post.let.set()
    x, a, bad = await together(*first)
    assert isinstance(x, Ack)
    assert isinstance(a, StoreUnavailable)
    assert isinstance(bad, StoreUnavailable)
    a, bad = await together(flusher.send(unit("a")), flusher.send(unit("bad")))
    assert isinstance(a, Ack)
    assert isinstance(bad, StoreUnavailable)
    await flusher.aclose()


async def test_a_unit_that_the_server_cannot_read_takes_no_other_down_with_it(post: Post) -> None:
    flusher = Flusher(post)
    post.whole = lambda writers: InvalidRecord("bad form") if "bad" in writers else None
    post.let = anyio.Event()
    sends = [asyncio.create_task(flusher.send(unit(writer))) for writer in ("x", "a", "bad")]
    await anyio.wait_all_tasks_blocked()
    post.let.set()
    _, a, bad = await together(*sends)
    assert isinstance(a, StoreUnavailable), "not refused: it may be fine"
    assert isinstance(bad, StoreUnavailable)
    a, bad = await together(flusher.send(unit("a")), flusher.send(unit("bad")))
    assert isinstance(a, Ack)
    assert isinstance(bad, InvalidRecord)
    await flusher.aclose()


async def test_a_server_that_cannot_be_reached_makes_no_lanes(post: Post) -> None:
    flusher = Flusher(post)
    post.whole = lambda _: Unreachable("connection refused")
    await together(*(flusher.send(unit(writer)) for writer in "abcd"))
    post.flights.clear()
    await together(*(flusher.send(unit(writer)) for writer in "abcd"))
    assert post.flights == [["a"], ["b", "c", "d"]]
    await flusher.aclose()


async def test_a_waiter_that_is_cancelled_breaks_no_flight(post: Post) -> None:
    post.let = anyio.Event()
    flusher = Flusher(post)
    sends = {w: asyncio.create_task(flusher.send(unit(w))) for w in "abc"}
    await anyio.wait_all_tasks_blocked()
    sends["a"].cancel()  # in flight
    sends["b"].cancel()  # waits
    await anyio.wait_all_tasks_blocked()
    again = [asyncio.create_task(flusher.send(unit("a"))) for _ in range(2)]
    await anyio.wait_all_tasks_blocked()
    assert post.flights == [["a"]], "the same writer's next waits for its flight to land"
    post.let.set()
    assert await together(sends["c"], *again) == [Ack(last=1, position=7)] * 3
    assert post.flights == [["a"], ["c", "a"], ["a"]]
    await flusher.aclose()


async def test_a_flight_is_bounded_in_units_and_bytes(post: Post) -> None:
    flusher = Flusher(post)
    await together(*(flusher.send(unit(f"w{number}")) for number in range(UNITS + 50)))
    assert max(map(len, post.flights)) == UNITS
    post.flights.clear()
    large = "x" * (FLIGHT_BYTES // 3)
    await together(*(flusher.send(unit(f"v{number}", text=large)) for number in range(8)))
    assert max(map(len, post.flights)) == 2
    huge = await flusher.send(unit("huge", text="x" * (2 * FLIGHT_BYTES)))
    assert huge.last == 1, "larger alone than a flight is"
    with pytest.raises(InvalidRecord, match="batch_bytes"):
        await flusher.send(unit("too-huge", text="x" * BODY_BYTES))
    await flusher.aclose()


@pytest.mark.parametrize("bad", ["raises", "short", "says nothing"])
async def test_a_flight_that_goes_wrong_leaves_nobody_waiting(post: Post, bad: str) -> None:
    async def answer(_: bytes) -> RecordsAnswer:
        if bad == "raises":
            raise RuntimeError("a fault of ours")
        return RecordsAnswer(answers=() if bad == "short" else (UnitAnswer(),))

    flusher = Flusher(answer)
    with anyio.fail_after(1), pytest.raises(StoreUnavailable):
        await flusher.send(unit("a"))
    await flusher.aclose()


async def test_closing_ends_the_flights_and_tells_those_who_wait(post: Post) -> None:
    post.stuck = {"a"}
    flusher = Flusher(post)
    sends = [asyncio.create_task(flusher.send(unit(writer))) for writer in "ab"]
    await anyio.wait_all_tasks_blocked()
    with anyio.fail_after(1):
        await flusher.aclose()
        assert [type(error) for error in await together(*sends)] == [Closed, Closed]
    with pytest.raises(Closed):
        await flusher.send(unit("c"))
    assert len(asyncio.all_tasks()) <= 2, "this one, and the test runner's"
