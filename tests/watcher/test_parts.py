"""The watcher's small parts, one by one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from recall_livekit import InvalidSettings
from recall_livekit.rooms.livekit_rooms import Dispatched, Member, Room
from recall_livekit.rooms.orders import Orders
from recall_livekit.watcher import WatcherSettings
from recall_livekit.watcher.former import PAGE, had_its_call
from recall_livekit.watcher.pacing import Turns
from recall_livekit.watcher.plan import Plan, died_before, expected_for, plan
from recall_livekit.watcher.policy import Policy
from recall_livekit.watcher.tries import Backoff, Tries

from .records import Machine
from .running import now, virtual

SETTINGS = WatcherSettings()
RESUME = Orders(resume=True)
STANDBY = Orders(resume=True, standby="joined")


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"ask_wait": 0},
        {"ask_wait": -1},
        {"ask_wait": "1"},
        {"ask_wait": True},
        {"lease_ttl": 1.9},
        {"lease_ttl": 3601},
        {"give_up_after": 2.5},
        {"most_rooms": float("nan")},
    ],
)
def test_a_setting_outside_its_range_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidSettings):
        WatcherSettings(**bad)


def test_the_package_loads_no_api_of_livekit() -> None:
    """`import recall_livekit` may lead to it."""
    told = "import sys, recall_livekit.watcher; print([m for m in sys.modules if m == 'aiohttp'])"
    command = [sys.executable, "-c", f"{told}"]
    before = "import sys, recall_livekit; print([m for m in sys.modules if m == 'aiohttp'])"
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    without = subprocess.run(
        [sys.executable, "-c", before], capture_output=True, text=True, check=True
    ).stdout
    assert loaded == without


# --- tries --------------------------------------------------------------------------------------


def test_pauses_grow_from_when_the_dead_one_came_and_are_forgotten() -> None:
    backoff = Backoff(1, 5, forget=6)
    waits = []
    at = 0.0
    for _ in range(5):
        backoff.failed(at)
        waits.append(backoff.left(at))
        at += waits[-1]
    assert waits == [1, 2, 4, 5, 5]
    backoff.failed(at + 7)
    assert backoff.left(at + 7) == 1
    backoff.reset()
    assert backoff.left(at + 7) == 0


def died(tries: Tries, at: float, *, lived: float = 0.5, excused: bool = False) -> None:
    tries.lives(at)
    assert tries.gone(at + lived, excused=excused)


def test_a_death_counts_once() -> None:
    tries = Tries(SETTINGS)
    assert not tries.gone(0, excused=False)
    died(tries, 0)
    assert not tries.gone(1, excused=False)
    assert tries.deaths == 1
    assert tries.pause(0.5) == 0


def test_five_deaths_and_no_fallback() -> None:
    tries = Tries(SETTINGS)
    for number in range(5):
        assert tries.next == "agent"
        died(tries, 20.0 * number)
    assert tries.next == "nobody"


def test_the_fallback_is_left_until_it_came_and_comes_at_once() -> None:
    tries = Tries(SETTINGS, has_fallback=True)
    for number in range(5):
        died(tries, float(number))
    assert (str(tries.next), tries.pause(5)) == ("fallback", 0)
    tries.dropped(5)
    assert str(tries.next) == "fallback"
    assert tries.pause(5) > 0
    tries.fallback_came()
    assert str(tries.next) == "nobody"


def test_who_lived_well_or_left_with_the_caller_clears_the_count() -> None:
    tries = Tries(SETTINGS)
    for number in range(4):
        died(tries, float(number))
    died(tries, 10, lived=60)
    assert tries.deaths == 1
    for number in range(3):
        died(tries, 80.0 + number)
    died(tries, 90, excused=True)
    assert tries.deaths == 0
    assert tries.pause(91) == 0


def test_dropped_dispatches_are_tried_again_for_ever_and_count_for_nothing() -> None:
    tries = Tries(SETTINGS)
    pauses = []
    for number in range(50):
        tries.dropped(number * 3.0)
        pauses.append(tries.pause(number * 3.0))
    assert pauses[:5] == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert max(pauses) == pytest.approx(SETTINGS.retry_last)
    assert tries.next == "agent"


# --- plan ---------------------------------------------------------------------------------------


def dispatched(at: float, name: str = "support", *, told: str = "", **orders: Any) -> Dispatched:
    return Dispatched(f"AD_{at}", name, told, Orders(**orders), at)


def test_a_replacement_is_told_what_the_first_of_its_name_was() -> None:
    made = [
        dispatched(0, ""),
        dispatched(0.5, "scribe", told="scribe"),
        dispatched(1, told="standby", standby="joined"),
        dispatched(2, told="first"),
        dispatched(3, told="second", resume=True),
    ]
    assert plan(made, "support", RESUME) == Plan("support", "first", RESUME)
    assert plan(made, None, RESUME) == Plan("scribe", "scribe", RESUME)
    assert plan(made, "sales", RESUME) == Plan("sales", "", RESUME)
    assert plan(made, "support", RESUME, instead="sorry") == Plan("sorry", "first", RESUME)
    assert plan([], None, RESUME) == Plan("", "", RESUME)
    assert plan([dispatched(1, "", told="x")], "", RESUME) == Plan("", "x", RESUME)


def test_an_agent_that_somebody_else_asked_for_is_expected_for_a_moment() -> None:
    made = [dispatched(0), dispatched(10, resume=True), dispatched(10.3, standby="joined")]
    assert expected_for(made, {}, 10.25, SETTINGS) == 0.75
    assert expected_for(made, {"AD_10": None}, 10.25, SETTINGS) == 0
    assert expected_for(made, {}, 11, SETTINGS) == 0
    assert expected_for(made, {}, 9, SETTINGS) == 1  # its clock is ahead
    assert expected_for(made, {}, -1000, SETTINGS) == 0  # and is not believed


def test_deaths_before_this_watcher_are_counted_from_the_dispatches() -> None:
    caller = Member("caller", "caller", joined_at=0)
    made = [dispatched(1), *(dispatched(at, resume=True) for at in (10, 80, 90, 120))]
    made.append(dispatched(121, resume=True, standby="joined"))
    assert died_before(made, [caller], 125, SETTINGS) == 3
    assert died_before(made, [caller], 200, SETTINGS) == 0
    back = Member("caller", "caller", joined_at=85)
    assert died_before(made, [back], 125, SETTINGS) == 2


# --- pacing -------------------------------------------------------------------------------------


@virtual
async def test_turns_of_one_name_come_one_after_the_other_in_order() -> None:
    turns, order = Turns(1), []

    async def one(number: int, name: str = "support") -> None:
        async with turns.turn(name):
            await asyncio.sleep(1)
            order.append((number, now()))

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            tasks.create_task(one(number))
        tasks.create_task(one(9, "sales"))
        await asyncio.sleep(0.5)
        assert not turns.is_calm("support")
        assert turns.is_calm("other")
    assert [number for number, _ in order if number != 9] == [0, 1, 2, 3, 4]
    assert dict(order)[9] == pytest.approx(1)
    assert now() == pytest.approx(5)
    assert turns.is_calm("support")


@virtual
async def test_who_is_cancelled_while_it_waits_blocks_nobody() -> None:
    turns = Turns(1)

    async def one() -> None:
        async with turns.turn("support"):
            await asyncio.sleep(1)

    tasks = [asyncio.create_task(one()) for _ in range(6)]
    await asyncio.sleep(0.5)
    for task in (tasks[0], tasks[2], tasks[3]):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert now() == pytest.approx(3.5)
    assert turns.is_calm("support")


@virtual
async def test_more_at_once_if_told_so_and_standbys_in_a_line_of_their_own() -> None:
    turns = Turns(3)

    async def one(standby: bool) -> None:
        async with turns.turn("support", standby=standby):
            await asyncio.sleep(1)

    await asyncio.gather(*(one(False) for _ in range(6)), *(one(True) for _ in range(2)))
    assert now() == pytest.approx(2)


# --- policy and former --------------------------------------------------------------------------


def test_a_fault_of_the_application_is_a_no(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> bool:
        raise RuntimeError("a bug")

    policy = Policy(agent_name="support", serve_rooms=broken, standby="joined", standby_for=broken)
    assert not policy.serves(Room("billing", "RM_1", 0))
    assert not policy.wants_standby("billing")
    assert caplog.text.count("failed: taken as no") == 2


def test_whose_agent_an_unknown_one_is() -> None:
    def member(name: str | None) -> Member:
        return Member("a", "agent", 0, agent_name=name)

    policy = Policy(agent_name="support", fallback_agent="sorry")
    assert all(policy.is_agent_of(member(name), None) for name in ("support", "sorry", ""))
    assert not policy.is_agent_of(member(None), None)  # an avatar, which nobody dispatched
    assert not policy.is_agent_of(member("scribe"), None)
    assert Policy().is_agent_of(member("scribe"), None)
    assert not Policy().is_agent_of(member("scribe"), "support")


@virtual
async def test_the_room_of_the_newest_run_is_found_however_long_it_is() -> None:
    recall = Machine().process(batch_records=1).recall
    for sid in ("RM_1", "RM_2"):
        async with recall.resume("billing", room_sid=sid) as call:
            for number in range(PAGE + 20):
                call.record_turn("user", f"turn {number}")
                if number % 10 == 0:
                    await call.flush()
            await call.flush()
            await call.aclose("ended")
    transport = recall._transport
    reading = await transport.read("billing")
    assert await had_its_call(transport, "billing", reading, "RM_2")
    assert not await had_its_call(transport, "billing", reading, "RM_1")
    await recall.erase("billing")
    reading = await transport.read("billing")
    assert await had_its_call(transport, "billing", reading, "RM_2")
    assert not await had_its_call(transport, "billing", reading, "RM_3")
    reading = await transport.read("nobody")
    assert not await had_its_call(transport, "nobody", reading, "RM_2")
