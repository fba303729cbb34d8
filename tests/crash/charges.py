"""Kills an agent around a tool that charges a card, and looks what its successor makes of it.

``python -m tests.crash charges DIRECTORY SEED KILLS``: each kill is a call of its own, in which a
worker is killed at one of its boundaries (of the store, of the tool, of the payment) or at any
moment, and the next one checks with the provider, a file, what became of the charge.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from livekit.agents import AgentSession, function_tool, llm

from recall_livekit import Action, Briefing, Recall, RecallAgent, Resolved, Settings
from recall_livekit.actions import action, action_key
from recall_livekit.testing.voices import ScriptedLLM, tool_call

from .dying import Death, DyingStore
from .nursery import Child, Tell, raise_child

SETTINGS = Settings(action_wait=20.0, seed_wait=20.0, retry_first=0.005)
"""No kill is to depend on how busy the machine is."""
SPREAD = 3
"""So far apart are the boundaries at which one kill and the next strike."""
ORDER = '{"order": "7"}'


class Provider:
    """Takes money: each line of its file is a charge. Asked twice, it charges twice."""

    def __init__(self, ledger: Path, death: Death) -> None:
        self._ledger = ledger
        self._death = death

    async def charge(self, key: str) -> str:
        self._death.pass_by("the request is on its way")
        await asyncio.sleep(0.005)
        self._death.pass_by("before the money is taken")
        with self._ledger.open("ab", buffering=0) as ledger:
            ledger.write(f"{key}\n".encode())
        self._death.pass_by("the money is taken")
        await asyncio.sleep(0.005)
        self._death.pass_by("the answer is there")
        return f"receipt {key}"

    def charges(self) -> list[str]:
        return self._ledger.read_text().splitlines() if self._ledger.exists() else []


class Till(RecallAgent):
    """Charges order 7, once, whatever happens."""

    def __init__(self, recall: Recall, call: str, provider: Provider, tell: Tell) -> None:
        self._provider = provider
        self._tell = tell
        self.resumed = asyncio.Event()
        super().__init__(instructions="Charge.", resume=call, recall=recall)

    @function_tool
    @action("external", if_unrecorded="refuse")
    async def charge(self, order: str) -> str:
        """Charge the card."""
        self._tell(ran=action_key())
        receipt = await self._provider.charge(action_key())
        self._tell(returned=receipt)
        return receipt

    async def on_fresh(self) -> None:
        self.resumed.set()

    async def on_resume(self, briefing: Briefing | None) -> None:
        assert await self.call.holding(20)
        self._tell(
            open=[(a.key, a.status) for a in self.call.briefing.actions],
            finished=[(a.key, a.status) for a in self.call.briefing.finished],
        )
        left = await self.reconcile(self._look)
        assert left == (), left
        self.resumed.set()

    async def _look(self, action: Action) -> Resolved | None:
        if action.key in self._provider.charges():
            return Resolved("done", f"receipt {action.key}")
        return Resolved("failed", "not charged")


def model(death: Death) -> ScriptedLLM:
    """Charges what was asked for and not charged yet, as far as it is told."""

    def reply(chat_ctx: llm.ChatContext) -> Any:
        death.pass_by("the model answers")
        outputs = [i.output for i in chat_ctx.items if isinstance(i, llm.FunctionCallOutput)]
        if any("receipt" in output for output in outputs):
            return "it is charged"
        if any("may have happened" in output for output in outputs):
            return "let me check that"
        return [tool_call("charge", ORDER)]

    return ScriptedLLM(reply, word_delay=0.0)


async def work(directory: Path, call: str, at: int | None, tell: Tell) -> None:
    """Serve the call; be killed at the boundary `at` after the caller asked."""
    death = Death()
    recall = Recall(DyingStore(directory / "records", death), settings=SETTINGS)
    agent = Till(recall, call, Provider(directory / call, death), tell)
    session: AgentSession[None] = AgentSession(llm=model(death), vad=None)
    await session.start(agent)
    await agent.resumed.wait()
    assert await agent.call.holding(20)
    began = death.passed
    if at is not None:
        death.at = began + at
    tell(asked=True)
    await session.generate_reply(user_input="charge order 7 please")
    assert await agent.call.flush(20)
    tell(done=death.passed - began)
    await session.aclose()
    await agent.call.aclose()
    tell(closed=True)


class Kills:
    """Kill after kill, each in a call of its own."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._chance = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.boundaries, self.seconds = self._rehearse()

    def _rehearse(self) -> tuple[int, float]:
        with raise_child(partial(work, self._directory, "rehearsal", None)) as child:
            child.wait_for("asked")
            asked = time.monotonic()
            boundaries = child.wait_for("done")
            seconds = time.monotonic() - asked
        self._check_once("rehearsal")
        return boundaries, seconds

    def run(self, kills: int) -> None:
        for number in range(kills):
            call = f"call {number}"
            at = 1 + SPREAD * (number // 2) % self.boundaries if number % 2 == 0 else None
            self._judge(call, self._killed(call, at))

    def _killed(self, call: str, at: int | None) -> Child:
        with raise_child(partial(work, self._directory, call, at)) as child:
            child.wait_for("asked")
            if at is None:
                child.listen(self._chance.uniform(0.0, 1.2 * self.seconds))
                child.kill()
            else:
                child.listen(1.0 + 5 * self.seconds)  # fewer boundaries than in the rehearsal
        return child

    def _judge(self, call: str, killed: Child) -> None:
        """Its successor knows of a charge that may have been made, and makes it once in all."""
        charged = self._charges(call)
        ran, returned = killed.values("ran"), killed.values("returned")
        with raise_child(partial(work, self._directory, call, None)) as heir:
            heir.wait_for("closed")
        known = dict(map(tuple, [*heir.values("open"), [], []][0]))
        ended = dict(map(tuple, [*heir.values("finished"), [], []][0]))
        assert set(ran) <= {*known, *ended}, f"{call}: it ran, and nobody knows of it"
        assert set(charged) <= {*known, *ended}, f"{call}: charged, and nobody knows of it"
        assert set(known.values()) <= {"unknown"}, f"{call}: {known}"
        assert not (ended and not returned), f"{call}: {ended}, and it had not returned"
        assert set(ended.values()) <= {"done"}, f"{call}: {ended}"
        self._check_once(call)
        what = "unknown" if known else "done" if ended else "not begun"
        self.seen[f"{what}, {'charged' if charged else 'not charged'}"] += 1

    def _check_once(self, call: str) -> None:
        assert len(self._charges(call)) == 1, f"{call}: charged {len(self._charges(call))} times"

    def _charges(self, call: str) -> list[str]:
        return Provider(self._directory / call, Death()).charges()


def main(directory: str, seed: str, kills: str) -> None:
    os.environ.pop("RECALL_URL", None)
    killing = Kills(Path(directory), int(seed))
    killing.run(int(kills))
    print(json.dumps({"kills": int(kills), "boundaries": killing.boundaries} | dict(killing.seen)))
