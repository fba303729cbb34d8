"""How long the caller hears nothing when the agent's process is killed."""

import asyncio
import tempfile
from pathlib import Path
from typing import Literal

from .crash import crash
from .stage import Mode, Stage

Way = Literal["livekit", "recall", "standby"]
ROUND_S = 60.0


def measure_gap(mode: Way, rounds: int) -> list[float]:
    """Silence at the caller's ear in ms, one figure a round; negative where the voices overlap.

    `livekit` is LiveKit alone, dispatched again at once; `recall` the same with a RecallAgent;
    `standby` a RecallAgent that was already dispatched to the room.
    """
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_gaps(Path(directory), mode, rounds))


async def _gaps(directory: Path, mode: Way, rounds: int) -> list[float]:
    worker: Mode = "livekit" if mode == "livekit" else "recall"
    async with Stage(directory, worker, idle=3) as stage:
        return [await _gap(stage, f"room-{one}", mode == "standby") for one in range(rounds)]


async def _gap(stage: Stage, room: str, standby: bool) -> float:
    async with asyncio.timeout(ROUND_S):
        await stage.warmed()  # a cold process would be measured instead
        async with stage.caller(room) as caller:
            crashed = await crash(stage, caller, room, standby=standby)
        await stage.close(room)
    return 1000 * crashed.gap
