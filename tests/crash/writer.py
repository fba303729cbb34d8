"""A worker to be killed: records on one call at a steady rate, and tells what is durable.

``python -m tests.crash.writer DIRECTORY CALL RATE``. Each line on stdout is a JSON object:
``{"held": epoch}`` once it holds the call, then ``{"acked": text}`` for each record that was
acknowledged, and ``{"partial": text}`` for words under way.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

from recall_livekit import Recall


def tell(**what: object) -> None:
    print(json.dumps(what), flush=True)


async def write(
    directory: str, call_id: str, rate: float, tell: Callable[..., None] = tell
) -> None:
    recall = Recall.open(f"sqlite:///{Path(directory)}")
    live = recall.resume(call_id)
    live.subscribe(lambda state: tell(**{state.value: True}))
    async with live as call:
        tell(held=call.epoch, known=[turn.content for turn in call.briefing.turns][-1:])
        number = 0
        while True:
            number += 1
            text = f"{call.epoch}.{number}"
            call.record_turn("user" if number % 2 else "assistant", text)
            call.partial("assistant", f"{text} and then")
            await call.flush()
            tell(acked=text)
            await asyncio.sleep(1 / rate)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], float(sys.argv[3])))
