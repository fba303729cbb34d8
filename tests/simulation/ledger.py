"""What must be true of a chain, checked at each entry on the stored bytes alone.

It knows nothing of the engine: it reads the JSON, and keeps its own small account of who may
write, of what was numbered, and of what counts in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Account", "Fail", "Ledger", "Said"]

Raw = dict[str, Any]
Fail = Callable[[str, str], None]
"""Told the name of the check and what is wrong."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn that counts, as the account has it."""

    content: str
    seq: int
    writer: str
    number: int
    lease_epoch: int | None
    epoch_read: int | None
    late: bool


@dataclass
class Account:
    """What counts in the current run."""

    run: int = 0
    turns: int = 0
    said: list[Said] = field(default_factory=list)
    userdata: Any = None
    goal: Any = None

    def open(self, run: int) -> None:
        self.run, self.said, self.userdata, self.goal = run, [], None, None

    def count(self, entry: Raw, run: int, *, late: bool) -> None:
        for number, record in enumerate(entry["records"], entry["first"]):
            self.turns += record["kind"] == "turn"
            if run == self.run:
                self._record(entry, number, record, late)

    def _record(self, entry: Raw, number: int, record: Raw, late: bool) -> None:
        provisional = "provisional_run" in entry
        if record["kind"] == "turn":
            self.said.append(
                Said(
                    record["content"],
                    self.turns,
                    entry["writer"],
                    number,
                    None if provisional else entry["epoch"],
                    entry["epoch"] if provisional else None,
                    late,
                )
            )
        elif record["kind"] == "userdata" and not late:
            self.userdata = record["data"]
        elif record["kind"] == "working_state" and not late:
            self.goal = record["changes"].get("goal", self.goal)


class Ledger:
    """The chain as far as it goes."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self.entries: list[Raw] = []
        self.account = Account()
        self.waiting: list[Raw] = []
        self.epoch = 0
        self.lease: Raw | None = None
        self.numbers: dict[str, int] = {}
        self.anchors: dict[str, int] = {}
        self.runs: dict[int, Raw] = {}
        self.erases: list[int] = []
        self.erased_run = 0
        self._attempts: set[str] = set()

    @property
    def holder(self) -> str | None:
        return self.lease["writer"] if self.lease else None

    def append(self, position: int, entry: Raw) -> None:
        if position != len(self.entries):
            self._fail("order", f"entry at {position}, the chain ends at {len(self.entries)}")
        if writer := entry.get("writer"):
            self.anchors.setdefault(writer, position)
        getattr(self, f"_{entry['kind']}")(entry)
        self.entries.append(entry)

    def is_under(self, writer: str, number: int, epoch: int) -> bool:
        """Whether the record of this number was written under the writer's lease of this epoch."""
        for entry in reversed(self.entries):
            mine = entry["kind"] == "records" and entry["writer"] == writer
            if mine and entry["first"] <= number < entry["first"] + len(entry["records"]):
                return "provisional_run" not in entry and entry["epoch"] == epoch
        return False

    def was_begun(self, writer: str, key: str) -> bool:
        """Whether the writer has the beginning of this tool call in the chain, under a lease."""
        return any(
            record.get("key") == key and record["status"] == "started"
            for entry in reversed(self.entries)
            if entry["kind"] == "records" and entry["writer"] == writer
            if "provisional_run" not in entry
            for record in entry["records"]
        )

    # --- records --------------------------------------------------------------------------------

    def _records(self, entry: Raw) -> None:
        self._number(entry)
        if (run := entry.get("provisional_run")) is None:
            self._under_lease(entry)
        elif self._may_still_write(entry):
            self.waiting.append(entry)
        else:
            self.account.count(entry, run, late=self._others_came(entry))

    def _number(self, entry: Raw) -> None:
        writer, known = entry["writer"], self.numbers.get(entry["writer"], 0)
        if entry["first"] <= known:
            self._fail("once", f"{writer} has number {known}, and {entry['first']} came again")
        if entry["first"] > known + 1:
            self._fail("gapless", f"{writer} has number {known}, then came {entry['first']}")
        self.numbers[writer] = entry["first"] + len(entry["records"]) - 1

    def _under_lease(self, entry: Raw) -> None:
        if entry["epoch"] != self.epoch or self.holder != entry["writer"]:
            self._fail(
                "fencing",
                f"{entry['writer']} wrote under epoch {entry['epoch']}; "
                f"it is {self.epoch}, held by {self.holder}",
            )
        self.account.count(entry, self.lease["run"] if self.lease else 0, late=False)

    def _may_still_write(self, entry: Raw) -> bool:
        if entry["epoch"] > self.epoch:
            self._fail("fencing", f"nobody can have read epoch {entry['epoch']} at {self.epoch}")
        if not self.erased_run < entry["provisional_run"] <= len(self.runs):
            self._fail("run", f"no run {entry['provisional_run']} is open to be written to")
        other = self.lease is not None and self.holder != entry["writer"]
        return other and entry["epoch"] == self.epoch

    def _others_came(self, entry: Raw) -> bool:
        """Whether another may have held the call since the epoch that the writer read."""
        own = self.holder == entry["writer"] and self.epoch == entry["epoch"] + 1
        return entry["epoch"] < self.epoch and not own

    def _flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for entry in waiting:
            self.account.count(entry, entry["provisional_run"], late=False)

    # --- leases, runs, erasure ------------------------------------------------------------------

    def _lease(self, entry: Raw) -> None:
        self._raises(entry)
        if entry["attempt"] in self._attempts:
            self._fail("attempt", f"attempt {entry['attempt']} was granted twice")
        if entry["run"] != self.account.run:
            self._fail("run", f"a lease of run {entry['run']} in run {self.account.run}")
        self._attempts.add(entry["attempt"])
        self._flush()
        self.epoch, self.lease = entry["epoch"], entry

    def _raises(self, entry: Raw) -> None:
        if entry["epoch"] != self.epoch + 1:
            self._fail("epoch", f"{entry['kind']} to epoch {entry['epoch']} at {self.epoch}")

    def _release(self, entry: Raw) -> None:
        if entry["epoch"] != self.epoch or self.holder != entry["writer"]:
            self._fail("fencing", f"{entry['writer']} released what {self.holder} holds")
        self.lease = None
        self._flush()

    def _run(self, entry: Raw) -> None:
        if entry["run"] != self.account.run + 1:
            self._fail("run", f"run {entry['run']} after run {self.account.run}")
        self.lease = None
        self._flush()
        self.runs[entry["run"]] = entry
        self.account.open(entry["run"])

    def _erase(self, entry: Raw) -> None:
        self._raises(entry)
        self.epoch, self.lease, self.waiting = entry["epoch"], None, []
        self.erased_run = self.account.run
        self.account.open(self.account.run)
        self.account.turns = 0
        self.erases.append(len(self.entries))

    def _stub(self, entry: Raw) -> None:
        self._fail("erasure", "a stub was appended")

    # --- what is to be shown --------------------------------------------------------------------

    def shown(self) -> Account:
        """Return what a reader is to be shown: what waits comes last."""
        if not self.waiting:
            return self.account
        mine = self.account
        shown = Account(mine.run, mine.turns, list(mine.said), mine.userdata, mine.goal)
        for entry in self.waiting:
            shown.count(entry, entry["provisional_run"], late=False)
        return shown
