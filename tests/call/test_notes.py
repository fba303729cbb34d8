"""Milestones and pointers: what a worker writes down about its work."""

from __future__ import annotations

from typing import Any

import pytest

from recall_livekit import InvalidRecord

from ..conftest import OpenRecall
from .test_call import CALL

pytestmark = [pytest.mark.anyio, pytest.mark.over_http]


async def test_the_next_worker_knows_the_last_milestone_and_where_the_work_lives(
    open_recall: OpenRecall,
) -> None:
    async with open_recall().resume(CALL) as call:
        call.update_working_state(goal="Move billing", progress="begun")
        call.milestone("12 call sites found", progress="found", step=2)
        call.set_pointer("branch", "git_ref", {"name": "billing-v1"})
        call.set_pointer("branch", "git_ref", {"name": "billing-v2"})
        call.milestone("first one migrated")
    async with open_recall().resume(CALL) as call:
        state, (pointer,) = call.briefing.working_state, call.briefing.pointers
        assert state is not None
        assert (state.last_milestone, state.step) == ("first one migrated", 2)
        assert (state.goal, state.progress, state.version) == ("Move billing", "found", 3)
        assert (pointer.name, pointer.fields) == ("branch", {"name": "billing-v2"})
        assert "branch (git_ref): name=billing-v2" in call.briefing.notes


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("milestone", (7,)),
        ("milestone", ([],)),
        ("set_pointer", ("x", "nowhere", {})),
        ("set_pointer", ("x", "env", {"a": 1})),
        ("set_pointer", ("x", "env", "a=b")),
        ("set_pointer", (None, "env", {})),
        ("set_pointer", ("x", "env", {"a": "b" * 600_000})),
        ("set_pointer", ("x", "env", {"a": "\ud800"})),
    ],
)
async def test_what_cannot_be_recorded_is_refused_at_once_and_the_call_goes_on(
    open_recall: OpenRecall, method: str, arguments: tuple[Any, ...]
) -> None:
    async with open_recall().resume(CALL) as call:
        with pytest.raises(InvalidRecord):
            getattr(call, method)(*arguments)
        assert not call.lag
        call.milestone("still here")
        assert await call.flush(5)
    state = (await open_recall().read(CALL)).working_state
    assert state is not None
    assert state.last_milestone == "still here"


async def test_they_are_redacted_like_everything(open_recall: OpenRecall) -> None:
    async with open_recall().resume(CALL, redact=lambda text: text.replace("4711", "#")) as call:
        call.milestone("order 4711 placed", progress="4711 is done")
        call.set_pointer("order 4711", "external", {"number": "4711"})
        assert await call.flush(5)
    assert "4711" not in (await open_recall().read(CALL)).model_dump_json()


@pytest.mark.parametrize("kind", ["pointer", "action"])
async def test_many_long_ones_at_once_are_stored_in_bodies_that_a_server_takes(
    open_recall: OpenRecall, kind: str
) -> None:
    async with open_recall().resume(CALL) as call:
        for number in range(40):
            if kind == "pointer":
                call.set_pointer(f"p{number}", "object", {"key": "k" * 200_000})
            else:
                call.record_action("search", arguments="q" * 200_000)
        assert await call.flush(30)
    entries = await open_recall().entries(CALL)
    assert sum(len(getattr(entry, "records", ())) for entry in entries) == 40
