"""All that is checked at each step, and who is told when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .audit import Audit
from .erased import SEALED, Erased
from .fairness import Fairness
from .ledger import Ledger, Raw
from .outputs import Outputs
from .spools import Spools
from .still import Still

__all__ = ["Judge"]


class Judge:
    """A `Watch`: it keeps the bytes as they were written and checks each of them."""

    def __init__(
        self, fail: Callable[[str, str], None], note: Callable[[str], None], retained_chars: int
    ) -> None:
        self._fail = fail
        self._note = note
        self.steps = 0
        self.takeovers = 0
        self.first_read: dict[str, int] = {}
        """How many entries a writer had read when it first read."""
        self.still = Still()
        self.ledger = Ledger(fail)
        self.fairness = Fairness(fail, self.ledger)
        self.erased = Erased(fail, self.ledger, self.still.everything, self.first_read)
        self.outputs = Outputs(fail, self.still.cells, SEALED)
        self.spools = Spools(fail, self.ledger, note)
        self._audit = Audit(fail, self.ledger, self.still, retained_chars)

    def step(self) -> None:
        self.steps += 1

    def entry(self, position: int, data: bytes) -> None:
        raw: Raw = json.loads(data)
        self._note(f"{position} {_line(raw)}")
        self.fairness.before(raw)
        self._count_takeover(raw)
        self.spools.entry(raw, data)
        self.outputs.entry(raw)
        self.ledger.append(position, raw)
        self.still.entries.append(bytes(data))
        self.erased.entry(position, raw, data)
        self._audit.entry(data)
        if raw["kind"] != "records":
            self._audit.compare()

    def _count_takeover(self, raw: Raw) -> None:
        last = next((e for e in reversed(self.ledger.entries) if e["kind"] == "lease"), None)
        if raw["kind"] != "lease" or self.fairness.who[raw["writer"]].breaks is not None:
            return
        if last is not None and last["writer"] != raw["writer"]:
            self.takeovers += 1

    def replaced(self, position: int, data: bytes) -> None:
        now: Raw = json.loads(data)
        if self.still.entries[position] != data:
            self.erased.replaced(position, self.ledger.entries[position], now, data)
        self.still.entries[position] = bytes(data)

    def cell(self, name: str, value: bytes) -> None:
        self._note(f"cell {name} {len(value)}")
        self.outputs.cell(name, value)
        self.still.cells[name] = bytes(value)
        self.erased.cell(name, value)
        self.fairness.cell(name)
        if name == "head":
            self._audit.snapshot()
        elif name.startswith("erased/"):
            self._audit.stubs()

    def acknowledged(self, writer: str, last: int, epoch: int = 0) -> None:
        """Check that what a writer was told is true; `epoch` is the lease it was told of."""
        if self.ledger.numbers.get(writer, 0) < last:
            self._fail("acknowledged", f"{writer} was told {last}, which is not in the chain")
        elif epoch and not self.ledger.is_under(writer, last, epoch):
            self._fail("under the lease", f"{writer} was told {last}, of the lease {epoch}")

    def may_run(self, writer: str, key: str) -> None:
        """Check that a tool which is about to run was begun under the lease (rule 18)."""
        if not self.ledger.was_begun(writer, key):
            self._fail("begun", f"{writer} runs {key}, which was not begun under a lease")

    async def final(self) -> None:
        """Check the whole once more."""
        self.spools.final()
        self._audit.compare()
        self._audit.snapshot()
        self._audit.stubs()
        await self._audit.answered()


def _line(raw: Raw) -> str:
    who = " ".join(str(raw[key]) for key in ("kind", "epoch", "writer") if key in raw)
    if raw["kind"] != "records":
        return " ".join(
            [who, *(f"{k}={raw[k]}" for k in ("run", "room_sid", "outcome") if k in raw)]
        )
    what = ",".join(_record(record) for record in raw["records"])
    return f"{who} {raw['first']} run={raw.get('provisional_run', 'held')} {what}"


def _record(record: dict[str, Any]) -> str:
    return str(record.get("content") or record["kind"])
