"""What happened, as rows in time: one column for each worker, and one for a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .strips import Strips
from .wire import Event

__all__ = ["COLUMNS", "Gauge", "GaugeState", "Row", "RowKind", "Screen", "Timeline"]

COLUMNS = ("worker 1", "worker 2", "server")
RowKind = Literal["agent", "caller", "fact", "death"]
GaugeState = Literal["answers", "down", "starts"]


@dataclass(slots=True)
class Row:
    """Something that was said, heard or done in a column: 1, 2 or 3."""

    column: int
    kind: RowKind
    when: str
    text: str
    mark: Literal["", "recorded", "cut", "waiting", "going on"] = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Gauge:
    """How the server is, and how many records wait for it; seconds since it was killed.

    So many of them are `spooled`: on the worker's disk.
    """

    state: GaugeState
    waiting: int
    spooled: int
    down_for: float = 0.0


class Screen(Protocol):
    """Where it is shown."""

    def title(self, text: str, *lines: str) -> None:
        """Begin a part."""

    def columns(self, pids: tuple[int, ...], names: Sequence[str] = COLUMNS) -> None:
        """Head the columns: of two workers, and of a third process if there is one."""

    def row(self, row: Row) -> None:
        """Show a row that changes no more."""

    def growing(self, row: Row | None) -> None:
        """Show what is being said right now."""

    def gauge(self, gauge: Gauge) -> None:
        """Show how the server is right now."""

    def strips(self, strips: Strips, final: bool = False) -> None:
        """Show how the voices sound right now, or, finally, how they did."""

    def say(self, text: str, good: bool | None = None) -> None:
        """Say something about it all: a good or a bad result, or a remark."""

    def table(self, rows: list[tuple[str, str, str]]) -> None:
        """Show a comparison; the first row is its head."""

    def close(self) -> None:
        """Give the terminal back."""


@dataclass
class Timeline:
    """Turns what the workers tell into rows, in the order in which they began.

    What a worker with recall records is shown once it was acknowledged, so its mark is true.
    """

    screen: Screen
    recalls: bool
    began_at: float
    holds: bool = True
    """Whether a row waits for the acknowledgement of its record; else it says that it waits."""
    quiet: bool = False
    """Whether only what is being said is shown, for words that were seen before."""
    killed_at: float | None = None
    _growing: Row | None = None
    _rows: list[Row] = field(default_factory=list)
    _unacknowledged: dict[str, Row] = field(default_factory=dict)
    _spoke: set[int] = field(default_factory=set)

    def show(self, worker: int, event: Event) -> None:
        """Show an event of a worker."""
        match event.kind:
            case "heard":
                self._grow(worker, "caller", event, event["text"])
            case "sound":
                self._sound(worker, event)
            case "word":
                spoken = self._growing.text if self._growing else ""
                self._grow(worker, "agent", event, spoken + event["text"])
            case "turn":
                self._turn(worker, event)
            case "acknowledged":
                self._acknowledged(event)
            case "tool":
                self._tool(worker, event)
            case "read" | "lease":
                self._add(Row(worker, "fact", self._when(event.at), self._told(event)))

    def killed(self, worker: int, at: float, when: str = "in the middle of a sentence") -> None:
        """From here on, time counts from the kill. What was being said ends here."""
        self._unacknowledged.clear()
        self._spoke.discard(worker)  # the next one in its column
        self._show_rows()
        self.killed_at, self.quiet = at, False
        if self._growing is not None:
            self._growing.mark = "cut"
            self._add(self._growing)
        self._growing = None
        self._add(Row(worker, "death", self._when(at), f"SIGKILL, {when}"))

    def died(self, worker: int, at: float) -> None:
        """The operating system says that it is dead."""
        self._add(Row(worker, "death", self._when(at), "dead"))

    # --- rows ---------------------------------------------------------------------------------

    def _sound(self, worker: int, event: Event) -> None:
        if worker not in self._spoke:
            self._spoke.add(worker)
            self._add(Row(worker, "fact", self._when(event.at), "first word"))
        self._grow(worker, "agent", event, "")

    def _grow(self, worker: int, kind: RowKind, event: Event, text: str) -> None:
        if self._growing is None:
            self._growing = Row(worker, kind, self._when(event.at), "")
        self._growing.text = text
        self.screen.growing(self._growing)

    def _turn(self, worker: int, event: Event) -> None:
        kind: RowKind = "agent" if event.by_agent else "caller"
        row = self._growing or Row(worker, kind, self._when(event.at), "")
        row.text, self._growing = self._shown(event["text"]), None
        self._add(row, event["id"] if self.recalls else None)

    def _shown(self, text: str) -> str:
        return text.strip()

    def _tool(self, worker: int, event: Event) -> None:
        noted = event["name"] == "update_working_state"
        row = Row(worker, "fact", self._when(event.at), self._told(event))
        self._add(row, event["id"] if self.recalls and noted else None)

    def _acknowledged(self, event: Event) -> None:
        for record in event["records"]:
            if row := self._unacknowledged.pop(record["id"], None):
                row.mark = "recorded"
        self._show_rows()

    def _add(self, row: Row, record: str | None = None) -> None:
        """Show a row, after those before it; after its record's acknowledgement, if it has one."""
        self._rows.append(row)
        if record is not None and self.holds:
            self._unacknowledged[record] = row
        elif record is not None:
            row.mark = "waiting"
        self._show_rows()

    def _show_rows(self) -> None:
        waiting = [id(row) for row in self._unacknowledged.values()]
        while self._rows and id(self._rows[0]) not in waiting:
            row = self._rows.pop(0)
            if not self.quiet:
                self.screen.row(row)
        if not self._rows:
            self.screen.growing(self._growing)

    def _when(self, at: float) -> str:
        if self.killed_at is None:
            return f"{at - self.began_at:.1f} s"
        after = at - self.killed_at
        return f"+{after * 1000:.0f} ms" if after < 1 else f"+{after:.1f} s"

    def _told(self, event: Event) -> str:
        match event.kind:
            case "read" if event["fresh"]:
                return "records read: none, a new call"
            case "read":
                where = ", and where they were cut off" if event["cut"] else ""
                unsure = f"; open: {', '.join(event['open'])}" if event["open"] else ""
                return f"records read: {event['turns']} turns{where}{unsure}"
            case "lease":
                return f"lease taken: epoch {event['epoch']}"
            case _:
                return _tool_told(event)


def _tool_told(event: Event) -> str:
    values = [v if isinstance(v, list) else [str(v)] for v in event["arguments"].values()]
    if event["name"] == "update_working_state":
        return f"working state: {'; '.join(', '.join(value) for value in values)}"
    return f"tool {event['name']}({', '.join(value[0] for value in values)})"
