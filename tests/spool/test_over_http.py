"""A real server that is away, workers that are killed meanwhile, and a spool that they share."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from recall_livekit import Recall
from recall_livekit.server.keys import open_keys
from recall_livekit.spool.status import status

from ..remote.children import child, server

pytestmark = pytest.mark.anyio
CALL = "billing"


async def until_spooled(directory: Path, records: int) -> None:
    with anyio.fail_after(20):
        while sum(file.records for file in status(directory)) < records:  # noqa: ASYNC110
            await anyio.sleep(0.05)


async def test_what_a_killed_worker_spooled_is_in_the_next_ones_first_briefing(
    tmp_path: Path, spool: Path
) -> None:
    records = tmp_path / "records"
    async with server(records) as (first, url), child("hold", url, CALL, 20) as worker:
        await worker.tells("acked")
        await first.kill()
        await until_spooled(spool, 1)  # it waits for each to be durable
        acked = worker.values("acked")
        await worker.kill()
        port = int(url.rsplit(":", 1)[1])
        async with server(records, port), Recall.open(url) as recall:
            next_one = recall.resume(CALL)
            next_one.start()
            assert await next_one.ready(10)
            briefed = [turn.content for turn in next_one.briefing.turns]
            turns = [turn.content for turn in await recall.turns(CALL)]
            await next_one.aclose()
    assert len(turns) > len(acked)
    assert turns == [f"1.{number}" for number in range(1, len(turns) + 1)]
    assert briefed == turns[-len(briefed) :]
    assert not list(status(spool))


async def test_what_waits_for_one_namespace_is_not_drained_into_another(
    tmp_path: Path, spool: Path
) -> None:
    records, texts = tmp_path / "records", {}
    keys = open_keys(f"sqlite:///{records}")
    made = {name: (await keys.create(name, "agent", "x")).key for name in ("acme", "umbrella")}
    await keys.aclose()
    async with server(records) as (_, url):
        port = int(url.rsplit(":", 1)[1])
    async with Recall.open(url, api_key=made["acme"]) as away:
        call = away.resume(CALL)
        call.start()
        call.record_turn("user", "for acme alone")
        await until_spooled(spool, 1)
        await call.aclose()
    async with server(records, port):
        for name in ("umbrella", "acme"):
            async with Recall.open(url, api_key=made[name]) as recall, recall.resume(CALL) as one:
                await one.flush(5)
                texts[name] = [turn.content for turn in await recall.turns(CALL)]
    assert texts == {"umbrella": [], "acme": ["for acme alone"]}
