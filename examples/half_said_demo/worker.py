"""One worker process: `python -m half_said_demo.worker {recall|plain} URL CALL_ID PORT`.

PORT is the payment provider's. The agent is in `agent.py`; the rest stands in for a room, a caller
and a network, as in `recovery.worker`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from recovery.line import Line
from recovery.worker import serve, serve_recorded

from recall_livekit import Recall
from recall_livekit.testing.voices import ScriptedLLM

from .agent import BoxOffice, Plain
from .payments import Payments
from .script import reply


async def main(mode: str, url: str, call_id: str, port: str) -> None:
    line, model, payments = Line(), ScriptedLLM(reply), Payments(int(port))
    async with Recall.open(url) as recall:
        line.tell("warm", pid=os.getpid())
        go = await line.orders.get()
        if mode == "recall":
            agent = BoxOffice(payments, resume=call_id, recall=recall)
            await serve_recorded(agent, model, line, go["speed"])
        else:
            await serve(Plain(payments), model, line, go["speed"])
    line.tell("ended")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
