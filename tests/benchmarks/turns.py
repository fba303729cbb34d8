"""How long one call's turn takes to be durable, one after the other."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from recall_livekit import Call, Recall

from .figures import median_ms
from .raw import RawLog, entry_of, raw_logs
from .recorded import sentences, url_of
from .registry import Row, Scale, benchmark

WARM_UP = 20
WITHIN_S = 10.0


@benchmark("turn_durable")
def turn_durable(scale: Scale) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as directory, raw_logs(Path(directory)) as (raw,):
        ours, alone = asyncio.run(_pairs(Path(directory), raw, scale.of(2_000, 20)))
    return [Row("turn_durable", median_ms(ours), "ms", median_ms(alone), "< 1 ms")]


async def _pairs(directory: Path, raw: RawLog, rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    alone: list[float] = []
    async with Recall.open(url_of(directory / "records")) as recall, recall.resume("one") as call:
        for _, text in zip(range(WARM_UP + rounds), sentences(), strict=False):
            ours.append(await turn(call, text))
            alone.append(_commit(raw, entry_of(text)))
    return ours[WARM_UP:], alone[WARM_UP:]


async def turn(call: Call, text: str) -> float:
    began = time.perf_counter()
    call.record_turn("user", text, message_id="item_0123456789ab")
    durable = await call.flush(seconds=WITHIN_S)
    took = time.perf_counter() - began
    if not durable:
        raise TimeoutError(f"a turn was not durable after {WITHIN_S} s")
    return took


def _commit(raw: RawLog, data: bytes) -> float:
    began = time.perf_counter()
    raw.commit(data)
    return time.perf_counter() - began
