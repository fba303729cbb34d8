"""How a call closes on a real livekit-server, and what the records say of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recall_livekit import Recall
from recall_livekit.engine.fold import Fold

from ..conftest import engine_of
from .crash import begin
from .leash import eventually
from .server import find_server
from .stage import Stage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.livekit,
    pytest.mark.skipif(find_server() is None, reason="no livekit-server binary"),
]


@asynccontextmanager
async def on_stage(directory: Path) -> AsyncIterator[tuple[Stage, Recall]]:
    async with (
        asyncio.timeout(90),
        Stage(directory, "recall", idle=2) as stage,
        Recall.open(f"sqlite:///{directory / 'records'}") as recall,
    ):
        yield stage, recall


async def fold_of(recall: Recall, room: str) -> Fold:
    return await engine_of(recall)._chain(room).refresh()


async def outcome(recall: Recall, room: str, *, within: float = 5.0) -> str:
    async def told() -> str | None:
        fold = await fold_of(recall, room)
        return fold.run.outcome if fold.run else None

    return await eventually(told, within=within)


async def test_every_way_to_close_leaves_its_outcome(tmp_path: Path) -> None:
    async with on_stage(tmp_path) as (stage, recall):
        async with stage.caller("leaves") as caller:
            await begin(stage, caller, "leaves")
        assert await outcome(recall, "leaves") == "left"
        await gone(stage, "leaves")

        async with stage.caller("deleted") as caller:
            await begin(stage, caller, "deleted")
            await stage.close("deleted")
            assert await outcome(recall, "deleted") == "ended"

        async with stage.caller("evicted") as caller:
            agent = await begin(stage, caller, "evicted")
            await stage.evict("evicted", agent.identity)
            assert await outcome(recall, "evicted") == "handover"


async def test_a_job_whose_worker_is_killed_hands_over_and_leaves_the_room(
    tmp_path: Path,
) -> None:
    async with on_stage(tmp_path) as (stage, recall), stage.caller("orphan") as caller:
        agent = await begin(stage, caller, "orphan")
        killed = time.monotonic()
        stage.kill_worker()
        assert await outcome(recall, "orphan", within=2) == "handover"

        async def left() -> bool:
            return agent.identity not in await stage.present("orphan")

        await eventually(left, within=3)
        print(f"the room is clean {1000 * (time.monotonic() - killed):.0f} ms after the kill")
        [cut] = (await recall.read("orphan")).partials
        assert cut.text.startswith("hello please tell me")


async def gone(stage: Stage, room: str) -> None:
    """Return when nobody is in the room: the job was shut down with the caller's leaving."""

    async def empty() -> bool:
        return not await stage.present(room)

    await eventually(empty, within=5)
