"""Only one watcher acts, and it knows when it is not the one any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recall_livekit import Recall
from recall_livekit.call_ids import WATCHER_CALL_ID
from recall_livekit.testing.leash import eventually
from recall_livekit.watcher.leading import Leader, NotActing

from .records import Machine
from .running import virtual


@asynccontextmanager
async def leading(recall: Recall) -> AsyncIterator[tuple[Leader, list[bool]]]:
    told: list[bool] = []
    leader = Leader(recall, 2.0, told.append)
    task = asyncio.create_task(leader.run())
    try:
        await asyncio.sleep(0.3)
        yield leader, told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@virtual
async def test_a_lease_that_was_lost_a_moment_ago_is_found_lost_before_the_act() -> None:
    machine = Machine()
    async with leading(machine.process().recall) as (leader, _):
        await leader.confirm()
        assert await machine.process().recall.break_lease(WATCHER_CALL_ID, 1)
        assert leader.acts  # as far as it knows
        with pytest.raises(NotActing):
            await leader.confirm()


@virtual
async def test_nobody_acts_who_cannot_ask_the_records() -> None:
    process = Machine().process()
    async with leading(process.recall) as (leader, _):
        process.line.cut = True
        with pytest.raises(NotActing):
            await leader.confirm()


@virtual
async def test_it_comes_back_after_it_lost_the_lease_or_the_chain_was_erased() -> None:
    machine = Machine()
    async with leading(machine.process().recall) as (leader, told):
        other = machine.process().recall
        assert await other.break_lease(WATCHER_CALL_ID, 1)
        await asyncio.sleep(5)
        assert leader.acts
        await other.erase(WATCHER_CALL_ID)
        await asyncio.sleep(5)
        assert leader.acts
        await leader.confirm()
        assert told == [True, False, True, False, True]


@pytest.mark.anyio
async def test_on_files_the_next_one_acts_at_once(tmp_path: Path) -> None:
    async with (
        Recall.open(f"sqlite:///{tmp_path}") as one,
        Recall.open(f"sqlite:///{tmp_path}") as two,
        leading(one) as (first, _),
    ):
        assert first.acts
        async with leading(two) as (second, _):
            await asyncio.sleep(0.3)
            assert not second.acts
            await first.confirm()
            with pytest.raises(NotActing):
                await second.confirm()

            async def acts() -> bool:
                return second.acts

            lock = first._call
            assert lock is not None
            await lock.aclose()
            await eventually(acts, within=0.5)
