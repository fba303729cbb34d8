"""What was spooled is kept: it comes into the chain, once and as what it is, or was erased.

A judge of its own: it reads the lines of the spool files and the entries of the chain as they are
written, and knows of each writer what its worker knew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from recall_livekit.call import Call

from .erased import MARKER
from .ledger import Fail, Ledger, Raw

__all__ = ["Spools"]


@dataclass
class _Known:
    """What the world knows of a writer that has a call."""

    call: Call
    sid: str | None
    durable: set[int] = field(default_factory=set)
    excused: bool = False
    """Its spool was set aside, or deleted because it was erased, and that was right."""


class Spools:
    """A `DiskWatch`, and a judge of the entries that come of it."""

    def __init__(self, fail: Fail, ledger: Ledger, note: Callable[[str], None]) -> None:
        self._fail = fail
        self._ledger = ledger
        self._note = note
        self._known: dict[str, _Known] = {}
        self._recorded: set[bytes] = set()

    def opened(self, call: Call, sid: str | None) -> None:
        self._known[call.writer] = _Known(call, sid)

    def cleared(self, writer: str) -> None:
        """The live call dropped what waited, and counted it: its run is erased, or over."""
        self._known[writer].excused = True

    # --- the disk -------------------------------------------------------------------------------

    def durable(self, name: str, data: bytes) -> None:
        lines = _lines(data)
        numbers = [line["n"] for line in lines if "n" in line]
        self._note(f"spooled {_writer(name)} {numbers[:1]}..{numbers[-1:]}")
        self._known[_writer(name)].durable.update(numbers)

    def deleted(self, name: str, data: bytes) -> None:
        """Check that all of it is in the chain, or was erased."""
        writer = _writer(name)
        self._note(f"deleted {name}")
        numbers = [line["n"] for line in _lines(data) if "n" in line]
        stored = self._ledger.numbers.get(writer, 0)
        if max(numbers, default=0) <= stored or self._known[writer].excused:
            return
        if not self._erased(writer, data):
            self._fail("spool", f"{writer}'s {max(numbers)} was deleted, and is not in the chain")
        self._known[writer].excused = True

    def aside(self, name: str, data: bytes) -> None:
        """Check that its run could not be told (rule 17)."""
        writer, ledger = _writer(name), self._ledger
        self._note(f"set aside {name}")
        if any(facts.get("run") for facts in _facts(data)) or writer in ledger.numbers:
            self._fail("spool", f"{writer}'s spool was set aside, and its run is known")
        if not ledger.erases and not ledger.runs:
            self._fail("spool", f"{writer}'s spool was set aside, and the call is free for it")
        self._known[writer].excused = True

    def _erased(self, writer: str, data: bytes) -> bool:
        """Whether the writer is from below the newest erasure, its room or its run is."""
        ledger, known = self._ledger, self._known[writer]
        if not ledger.erases:
            return False
        read = known.call._keeper.first_read
        return (
            ledger.anchors.get(writer, ledger.erases[-1]) < ledger.erases[-1]
            or (read is not None and read <= ledger.erases[-1])
            or self._names(known.sid, erased=True)
            or any(0 < facts.get("run", 0) <= ledger.erased_run for facts in _facts(data))
        )

    def _names(self, sid: str | None, *, erased: bool) -> bool:
        """Whether the chain names the room, in a run that was erased or in one that was not."""
        ledger = self._ledger
        return sid is not None and any(
            run.get("room_sid") == sid and (number <= ledger.erased_run) is erased
            for number, run in ledger.runs.items()
        )

    # --- the chain ------------------------------------------------------------------------------

    def entry(self, entry: Raw, data: bytes) -> None:
        """Check an entry before it counts."""
        if entry["kind"] == "records":
            self._once(data)
        known = self._known.get(entry.get("writer", ""))
        if known is not None and entry["kind"] in ("records", "run"):
            self._placed(entry, known)
        if known is not None and entry["kind"] == "records" and entry["epoch"] > known.call.epoch:
            what = f"under epoch {entry['epoch']}, of which it knew {known.call.epoch}"
            self._fail("late", f"{entry['writer']} wrote {what}")

    def _once(self, data: bytes) -> None:
        markers = set(MARKER.findall(data))
        if again := markers & self._recorded:
            self._fail("once", f"{min(again).decode()} is in the chain twice")
        self._recorded |= markers

    def _placed(self, entry: Raw, known: _Known) -> None:
        """Rule 17: who never read may have spoken before the erasure, and before another run."""
        ledger = self._ledger
        if known.call._keeper.first_read is not None:
            return
        if ledger.erases and not self._names(known.sid, erased=False):
            self._fail("placing", f"{entry['writer']} never read, and writes after an erasure")
        opens = entry["kind"] == "run" and ledger.account.run > ledger.erased_run
        if opens and ledger.runs[ledger.account.run]["at"] > entry["at"]:
            self._fail("placing", f"{entry['writer']}'s old words end a newer run")

    # --- the end --------------------------------------------------------------------------------

    def final(self) -> None:
        """Check that everything that was durable is in the chain, or rightly is not."""
        for writer, known in self._known.items():
            last = self._ledger.numbers.get(writer, 0)
            lost = [number for number in known.durable if number > last]
            if lost and not known.excused and not self._erased(writer, b""):
                self._fail("spool", f"{writer}'s {min(lost)} was spooled, and is lost")


def _lines(data: bytes) -> list[Raw]:
    """Return the lines that are whole: what is torn was never told to be durable."""
    found = []
    for line in data.split(b"\n")[:-1]:
        try:
            found.append(json.loads(line[9:]))
        except ValueError:
            continue
    return found


def _facts(data: bytes) -> list[Raw]:
    return [line["facts"] for line in _lines(data) if "facts" in line]


def _writer(name: str) -> str:
    return name.split("-")[2].partition(".")[0]
