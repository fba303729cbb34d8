"""Where a worker is, and whether somebody was there before it."""

from __future__ import annotations

import time

import pytest

from recall_livekit.livekit.place import Place
from recall_livekit.rooms.orders import ORDERS, Orders

from ..call.freezer import Freezer
from ..conftest import OpenRecall
from .desk import a_job
from .line import Line, until
from .test_agent import Support

pytestmark = pytest.mark.anyio


async def test_the_orders_of_a_job_are_in_its_dispatch() -> None:
    with a_job(metadata='{"recall": {"resume": true}, "mine": 7}') as job:
        assert Place.here().orders == Orders(resume=True)
        orders = Orders(standby="joined", handover=True)
        job.job.attributes[ORDERS] = orders.model_dump_json()
        assert Place.here().orders == orders


async def test_outside_a_job_nothing_is_known() -> None:
    assert Place.here() == Place()
    assert not Place.here().had_agent(15.0)


async def test_the_job_tells_the_room_before_it_is_connected() -> None:
    with a_job() as job:
        job.job.agent_name = "support"
        job.job.participant.identity = "anna"
        place = Place.here()
    assert place.room_sid == job.job.room.sid
    assert (place.caller, place.agent_name) == ("anna", "support")


@pytest.mark.parametrize(
    ("metadata", "age", "before"),
    [
        ("", 1.0, False),
        ("", 30.0, True),
        ('{"recall": {"resume": true}}', 1.0, True),
        ('{"recall": {"resume": "yes"}}', 1.0, True),
        ('{"recall": {"resume": "perhaps"}}', 1.0, False),
        ('{"recall": {"standby": "joined"}}', 1.0, True),
        ('{"recall": 7}', 1.0, False),
        ("[1]", 1.0, False),
        ("not json", 1.0, False),
    ],
)
async def test_who_was_here_before(metadata: str, age: float, before: bool) -> None:
    with a_job(metadata=metadata) as job:
        job.job.room.creation_time = int(time.time() - age)
        assert Place.here().had_agent(15.0) is before


@pytest.mark.parametrize(("age", "told"), [(1.0, "fresh"), (60.0, "resume unread")])
async def test_records_unread_the_rooms_age_decides_what_is_said(
    open_recall: OpenRecall, age: float, told: str
) -> None:
    freezer = Freezer(frozen=True)
    agent = Support(open_recall(faults=freezer, seed_wait=0.1, flush_wait=0.2))
    assert agent._live is not None
    agent._live.place = Place(room_created_at=time.time() - age)
    async with Line(agent).open():
        await until(lambda: agent.told)
        assert agent.told == [told]
        freezer.thaw()
