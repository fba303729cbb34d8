"""Columns on a terminal: finished rows scroll up, what is being said grows below them."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .strips import KILLED, SILENT, Strip, Strips
from .timeline import COLUMNS, Gauge, Row

__all__ = ["RichScreen", "drawn"]

WIDEST = 110
WHEN = 8
GAP = 2
SERVER = 34
"""How wide the third column is at most, beside those of the workers."""
MOST_BARS = 20

DIM = "bright_black"
COLOURS = {"agent": "green", "caller": "cyan"}
MARKS = {
    "": ("", ""),
    "recorded": (" ✓", DIM),
    "cut": (" ▌", "bold red"),
    "waiting": (" ◌", "bold yellow"),
    "going on": (" …", DIM),
}
STATES = {
    "answers": ("● answers", "green"),
    "down": ("✗ down", "bold red"),
    "starts": ("◌ starts", "yellow"),
}


class RichScreen:
    """Shows rows in their columns."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._full = self._console.width
        self._console.width = min(self._full, WIDEST)
        self._widths: list[int] = []
        self._growing: Row | None = None
        self._gauge: Gauge | None = None
        self._strips: Strips | None = None
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def title(self, text: str, *lines: str) -> None:
        self._console.print()
        self._console.rule(Text(text, style="bold"), style=DIM)
        self._console.print(Text(" ".join(lines), style=DIM))
        self._console.print()

    def columns(self, pids: tuple[int, ...], names: Sequence[str] = COLUMNS) -> None:
        server = [min(SERVER, self._full // 4)] if len(pids) > 2 else []
        self._console.width = min(self._full, WIDEST + sum(server))
        left = self._console.width - WHEN - (1 + len(pids)) * GAP - sum(server)
        self._widths = [left // 2, left // 2, *server]
        heads = [
            Text.assemble((name, "bold"), (f"  process {pid}", DIM))
            for name, pid in zip(names, pids, strict=False)
        ]
        self._console.print(self._grid("", heads))

    def row(self, row: Row) -> None:
        self._console.print(self._cells(row))

    def growing(self, row: Row | None) -> None:
        self._growing = row
        self._refresh()

    def gauge(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._refresh()

    def strips(self, strips: Strips, final: bool = False) -> None:
        self._strips = None if final else strips
        if final:
            self._console.print(heard(strips, self._console.width), Text())
        self._refresh()

    def say(self, text: str, good: bool | None = None) -> None:
        sign, style = {True: ("✓ ", "bold green"), False: ("✗ ", "bold red"), None: ("  ", "")}[
            good
        ]
        self._console.print(Text(sign + text, style=style))

    def table(self, rows: list[tuple[str, str, str]]) -> None:
        table = Table(*rows[0], box=box.SIMPLE_HEAD, header_style="bold")
        for name, recalled, plain in rows[1:]:
            table.add_row(name, Text(recalled, style="green"), Text(plain, style="yellow"))
        self._console.print(table)

    def close(self) -> None:
        self._live.stop()

    def _refresh(self) -> None:
        growing = self._cells(self._growing) if self._growing else Text()
        below: list[RenderableType] = [Text(), drawn(self._gauge)] if self._gauge else []
        below += [Text(), heard(self._strips, self._console.width)] if self._strips else []
        self._live.update(Group(growing, *below), refresh=True)

    def _cells(self, row: Row) -> Table:
        cells = [Text() for _ in self._widths]
        cells[row.column - 1] = _styled(row)
        return self._grid(row.when, cells)

    def _grid(self, when: str, cells: list[Text]) -> Table:
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_column(width=WHEN, justify="right", style=DIM)
        for width in self._widths:
            grid.add_column(width=width)
        grid.add_row(when, *cells)
        return grid


def drawn(gauge: Gauge) -> Text:
    """The server and what waits for it, as one line."""
    state, style = STATES[gauge.state]
    since = "" if gauge.state == "answers" else f" for {gauge.down_for:.1f} s"
    bars = "▮" * min(gauge.waiting, MOST_BARS)
    return Text.assemble(
        (" " * (WHEN + GAP), ""),
        ("the server ", DIM),
        (f"{state}{since}".ljust(20), style),
        ("records that wait for it ", DIM),
        (f"{gauge.waiting} {bars}", "bold yellow" if gauge.waiting else DIM),
        (f" {gauge.spooled} on the worker's disk" if gauge.spooled else "", "yellow"),
    )


def heard(strips: Strips, width: int) -> Group:
    """The voices below each other, under a ruler."""
    left = GAP + max(len(strip.name) for strip in strips.strips)
    room = width - left - max(len(strip.remark) + GAP for strip in strips.strips)
    ruler = Text(" " * left + strips.ruler(room), style=DIM)
    return Group(ruler, *(_lane(strip, strips.drawn(strip, room), left) for strip in strips.strips))


def _lane(strip: Strip, drawn: str, left: int) -> Text:
    lane = Text.assemble((strip.name.ljust(left), DIM), (drawn, COLOURS[strip.kind]))
    lane.highlight_words([KILLED, SILENT], style="bold red")
    return lane.append(f"{' ' * GAP}{strip.remark}" if strip.remark else "", style="bold")


def _styled(row: Row) -> Text:
    text, mark = row.text.strip(), MARKS[row.mark]
    if row.kind == "death":
        return Text(f"✗ {text}", style="bold red")
    if row.kind == "fact":
        return Text.assemble((f"· {text}", "yellow"), mark)
    colour = COLOURS[row.kind]
    remark = (f"  {row.remark}" if row.remark else "", DIM)
    return Text.assemble((f"{row.kind} ", f"bold {colour}"), (text, colour), mark, remark)
