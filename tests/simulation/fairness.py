"""Who takes a call must have had a reason; who opens a second run, too (rules 5, 9 and 11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from recall_livekit.breaking import breaker_of

from .ledger import Fail, Ledger, Raw
from .process import Process

__all__ = ["Fairness", "Who"]

TTL = 2.0
RESUME_WINDOW = 30.0
REJOIN_WINDOW = 3.0
JUST_NOW = 0.7
"""Seconds between a taker's look and its lease, at most, if nothing stopped it."""


@dataclass(frozen=True, slots=True)
class Who:
    """What the world knows of a writer."""

    process: Process
    steals: bool = False
    breaks: int | None = None
    """The epoch whose lease it breaks: no other, and it writes nothing else."""


class Fairness:
    """Judges leases and runs by what the world knows, which no worker does."""

    def __init__(self, fail: Fail, ledger: Ledger) -> None:
        self._fail = fail
        self._ledger = ledger
        self.who: dict[str, Who] = {}
        self.locked: Callable[[str], bool] | None = None
        """Whether a lock is held; None if the data have no locks."""
        self._leased: dict[int, float] = {}
        self._renewed: dict[int, float] = {}
        """When each epoch began, and showed a sign of life last, in true time."""
        self._outcomes: dict[int, Raw] = {}
        self._have_held: set[str] = set()

    def before(self, entry: Raw) -> None:
        """Judge an entry that is about to be counted."""
        match entry["kind"]:
            case "lease":
                self._taking(entry)
                self._leased[entry["epoch"]] = self._renewed[entry["epoch"]] = _now()
                self._have_held.add(entry["writer"])
                self._outcomes.pop(entry["run"], None)
            case "release" if self._ledger.lease:
                self._outcomes[self._ledger.lease["run"]] = entry
            case "run":
                self._opening(entry)

    def cell(self, name: str) -> None:
        """Note a renewal."""
        kind, _, epoch = name.partition("/")
        if kind == "renewal":
            self._renewed[int(epoch)] = _now()

    def broken(self, epoch: int) -> None:
        """Somebody was told that this epoch's lease is broken: then it is over for ever."""
        if self._ledger.epoch <= epoch:
            self._fail("breaking", f"epoch {epoch} was said to be broken, and is not")
        lease = self._ledger.lease
        if lease is not None and lease["writer"] == breaker_of(epoch):
            self._fail("breaking", f"who broke epoch {epoch} keeps the call")

    def closed(self, run: int) -> bool:
        """Whether the run ended, or its caller left."""
        outcome = self._outcomes.get(run)
        return outcome is not None and outcome["outcome"] in ("ended", "left")

    # --- leases ---------------------------------------------------------------------------------

    def _taking(self, new: Raw) -> None:
        old, breaks = self._ledger.lease, self.who[new["writer"]].breaks
        if breaks is not None:
            self._breaking(old, new, breaks)
            return
        if old is None or old["writer"] == new["writer"]:
            return
        if not self._steals(new["writer"]) and self._lives(old, new):
            self._fail("taking", f"{old['writer']} lives, and {new['writer']} took its call")

    def _breaking(self, old: Raw | None, new: Raw, epoch: int) -> None:
        if old is None or old["epoch"] != epoch:
            found = f"epoch {old['epoch']}" if old else "a call that nobody had"
            self._fail("breaking", f"{new['writer']} took {found}")
        elif old["run"] != new["run"]:
            self._fail("breaking", f"{new['writer']} took run {old['run']} into {new['run']}")

    def _lives(self, holder: Raw, other: Raw) -> bool:
        """Whether nobody in the other's place could have had evidence against the holder."""
        held = _now() - self._leased[holder["epoch"]]
        silent = _now() - self._renewed[holder["epoch"]]
        stood = self._stood(other["writer"])
        lock = holder.get("lock")
        if self.locked is None or lock is None:
            return held < TTL and other["at"] <= holder["at"] + TTL and not stood
        recent = JUST_NOW < silent < TTL - JUST_NOW and not stood
        return self.locked(lock) and (held < TTL or recent)

    def _steals(self, writer: str) -> bool:
        return self.who[writer].steals and writer not in self._have_held

    def _stood(self, writer: str) -> bool:
        """Whether the writer's process stood still or had its clock changed just now."""
        process = self.who[writer].process
        return _now() - max(process.stopped_at, process.jumped_at) < TTL

    # --- runs -----------------------------------------------------------------------------------

    def _opening(self, new: Raw) -> None:
        number, lease = self._ledger.account.run, self._ledger.lease
        if self.who[new["writer"]].breaks is not None:
            self._fail("breaking", f"{new['writer']} opens a run")
        if number <= self._ledger.erased_run or self._stood(new["writer"]):
            return
        old, outcome = self._ledger.runs[number], self._outcomes.get(number)
        if outcome and outcome["outcome"] == "ended":
            return
        if (
            lease
            and lease["run"] == number
            and not _other_room(old, new)
            and self._lives(lease, new)
        ):
            self._fail("run", f"{lease['writer']} lives, and {new['writer']} opens another run")
        window = REJOIN_WINDOW if self._rejoins(old, new, outcome) else RESUME_WINDOW
        same = old.get("caller") == new.get("caller") or not _other_room(old, new)
        if same and new["at"] - self._last_sign(old, outcome) <= window:
            self._fail("run", f"{new['writer']} opens a second run for one call")

    def _rejoins(self, old: Raw, new: Raw, outcome: Raw | None) -> bool:
        return _other_room(old, new) or (outcome is not None and outcome["outcome"] == "left")

    def _last_sign(self, run: Raw, outcome: Raw | None) -> float:
        lease = self._ledger.lease
        if outcome is not None:
            return float(outcome["at"])
        signs = [run["at"]]
        if lease and lease["run"] == run["run"]:
            signs.append(lease["at"])
        return float(max(signs))


def _other_room(old: Raw, new: Raw) -> bool:
    rooms = (old.get("room_sid"), new.get("room_sid"))
    return None not in rooms and rooms[0] != rooms[1]


def _now() -> float:
    return asyncio.get_running_loop().time()
