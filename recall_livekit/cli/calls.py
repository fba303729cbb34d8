"""``calls``: how every call stands, a table that fills, or lines for a program."""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from ..client import Recall
from ..engine.listing import CallSummary
from .opening import opened
from .page import STATE_STYLES
from .paper import Paper, note, put
from .texts import safe, shown_id
from .times import ago, iso, moment

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Shelf", "list_calls"]

SORTED = 10_000
"""So many are sorted before any is written; of more, the others follow in no order."""
DRAW_EVERY = 0.25
"""Seconds between two drawings of a table that fills."""


async def list_calls(
    url: str | None, *, state: str | None, limit: int | None, as_json: bool
) -> None:
    """List the calls that stand so, the ones heard of last first.

    Raises:
        Failed: Nothing is there.
        RecallError: Also after what could be read was listed.
    """
    async with opened(url) as recall:
        paper = Paper()
        async with aclosing(_standing(recall, state)) as calls:
            if as_json or not paper.is_terminal:
                await _write_lines(calls, limit, _json_line if as_json else _line)
            else:
                await _draw(calls, limit, paper)


class Shelf:
    """The calls that were heard of last, at most so many."""

    def __init__(self, most: int) -> None:
        """Begin empty."""
        self._most = most
        self._heap: list[tuple[float, str, CallSummary]] = []
        self.seen = 0

    @property
    def is_over(self) -> bool:
        """Whether there were more than have a place."""
        return self.seen > self._most

    def add(self, call: CallSummary) -> None:
        """Put the call in; the one heard of first goes if there is no place for all."""
        self.seen += 1
        item = (call.seen_at, call.call_id, call)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, item)
        else:
            heapq.heappushpop(self._heap, item)

    def newest(self, count: int | None = None) -> Sequence[CallSummary]:
        """Return all or at most `count`, the one heard of last first."""
        return [item[2] for item in heapq.nlargest(count or self._most, self._heap)]


async def _standing(recall: Recall, state: str | None) -> AsyncGenerator[CallSummary, None]:
    async for call in recall.summaries():
        if state in (None, call.state):
            yield call


# --- for a program ------------------------------------------------------------------------------


async def _write_lines(
    calls: AsyncIterator[CallSummary], limit: int | None, write: Callable[[CallSummary], None]
) -> None:
    """Write the newest first. Of more than `SORTED` the rest follow as they come."""
    shelf = Shelf(limit or SORTED)
    flowing = False
    try:
        async for call in calls:
            if flowing:
                write(call)
                continue
            shelf.add(call)
            flowing = limit is None and shelf.seen == SORTED
            if flowing:
                _write_all(shelf, write)
    finally:
        if not flowing:
            _write_all(shelf, write)


def _write_all(shelf: Shelf, write: Callable[[CallSummary], None]) -> None:
    for call in shelf.newest():
        write(call)


def _json_line(call: CallSummary) -> None:
    put(call.model_dump_json())


def _line(call: CallSummary) -> None:
    cells = (
        shown_id(call.call_id),
        call.state,
        str(call.run),
        str(call.turns),
        iso(call.seen_at) if call.seen_at else "-",
        iso(call.opened_at) if call.opened_at else "-",
        safe(call.agent_name or "-"),
    )
    sys.stdout.write("\t".join(cells) + "\n")


# --- for a person -------------------------------------------------------------------------------


async def _draw(calls: AsyncIterator[CallSummary], limit: int | None, paper: Paper) -> None:
    """Draw a table that fills while it is read, then the whole of it."""
    from rich.live import Live

    console, shelf = paper.console, Shelf(limit or SORTED)
    drawn = 0.0
    try:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            async for call in calls:
                shelf.add(call)
                if time.monotonic() - drawn >= DRAW_EVERY:
                    live.update(_table(shelf, console.height - 5), refresh=True)
                    drawn = time.monotonic()
    finally:
        _write_table(paper, shelf)
    if shelf.is_over and limit is None:
        note(f"the newest {SORTED} of {shelf.seen}: into a pipe all are written")


def _write_table(paper: Paper, shelf: Shelf) -> None:
    if not shelf.seen:
        paper.line("no calls")
        return
    paper.console.print(_table(shelf, None))


def _table(shelf: Shelf, rows: int | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column(f"CALL ({shelf.seen})", overflow="fold", ratio=1)
    table.add_column("STATE")
    for name in ("RUN", "TURNS"):
        table.add_column(name, justify="right")
    for name in ("LAST HEARD", "OPENED", "AGENT"):
        table.add_column(name, overflow="fold")
    now = time.time()
    for call in shelf.newest(rows):
        table.add_row(
            Text(shown_id(call.call_id)),
            Text(call.state, STATE_STYLES.get(call.state, "")),
            str(call.run),
            str(call.turns),
            Text(ago(call.seen_at, now) if call.seen_at else "-"),
            Text(moment(call.opened_at, now) if call.opened_at else "-"),
            Text(safe(call.agent_name or "")),
        )
    return table
