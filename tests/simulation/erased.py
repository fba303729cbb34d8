"""What was erased stays erased: no marker of it is written, or left, once an erasure is done."""

from __future__ import annotations

import re
from collections.abc import Callable

from .ledger import Fail, Ledger, Raw

__all__ = ["MARKER", "SEALED", "Erased", "marker"]

MARKER = re.compile(rb"m[0-9]{7}x")
SEALED = (b'{"v":1,"sealed":true}', b'{"v":1,"sealed":true,"end":true}')
_CONTENT = ("partial", "snapshot", "output")


def marker(number: int) -> str:
    """Return a text that is in the data only if what it marks is."""
    return f"m{number:07d}x"


class Erased:
    """Which markers belong below which erasure, and whether it is done."""

    def __init__(
        self,
        fail: Fail,
        ledger: Ledger,
        everything: Callable[[], bytes],
        first_read: dict[str, int],
    ) -> None:
        self._fail = fail
        self._ledger = ledger
        self._everything = everything
        self._first_read = first_read
        self._marked: dict[bytes, int] = {}
        self.gone: set[bytes] = set()
        self.done = -1
        """The position of the newest erasure that was carried out to its end."""

    def entry(self, position: int, raw: Raw, data: bytes) -> None:
        """Check a new entry: its writer must not come from below an erasure."""
        self._mark(position, data)
        writer, erases = raw.get("writer"), self._ledger.erases
        if writer is None or not erases or raw["kind"] == "erase":
            return
        if self._ledger.anchors[writer] < erases[-1]:
            self._fail("erasure", f"{writer} wrote below the erasure at {erases[-1]} and goes on")
        if self._first_read.get(writer, position) <= erases[-1]:
            self._fail("erasure", f"{writer} read below the erasure at {erases[-1]} and writes")

    def replaced(self, position: int, was: Raw, now: Raw, data: bytes) -> None:
        """Check that an overwritten entry is a true stub of what was erased."""
        if not self._ledger.erases or position >= self._ledger.erases[-1]:
            self._fail("erasure", f"position {position} is not below an erasure: overwritten")
        same = ("epoch", "writer") if was["kind"] != "erase" else ("epoch",)
        if now["kind"] != "stub" or any(was.get(key) != now.get(key) for key in same):
            self._fail("erasure", f"position {position} was overwritten by no stub of itself")
        if was["kind"] == "records" and (now["first"], now["count"]) != (
            was["first"],
            len(was["records"]),
        ):
            self._fail("once", f"position {position} lost its numbers when it was erased")
        if MARKER.search(data):
            self._fail("erasure", f"the stub at {position} still has content")

    def cell(self, name: str, value: bytes) -> None:
        """Check a cell: once an erasure is done, those of its writers stay sealed."""
        kind, _, rest = name.partition("/")
        if kind == "erased":
            self._finish(int(rest))
        elif kind in _CONTENT and value not in SEALED:
            anchor = int(rest.partition("/")[0])
            if anchor < self.done:
                self._fail("erasure", f"{name} was written after the erasure at {self.done}")
            self._mark(anchor, value)

    def _mark(self, position: int, data: bytes) -> None:
        for found in MARKER.findall(data):
            if found in self.gone:
                self._fail("erasure", f"{found.decode()} was erased and came back")
            self._marked.setdefault(found, position)

    def _finish(self, position: int) -> None:
        below = {found for found, at in self._marked.items() if at < position}
        self.gone |= below
        self._marked = {found: at for found, at in self._marked.items() if at >= position}
        self.done = max(self.done, position)
        if left := below & set(MARKER.findall(self._everything())):
            some = b", ".join(sorted(left)[:3]).decode()
            self._fail("erasure", f"{some} is left after the erasure at {position}")
