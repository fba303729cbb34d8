"""Two columns on a terminal: finished rows scroll up, what is being said grows below them."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .timeline import Row

__all__ = ["RichScreen"]

WIDEST = 110
WHEN = 8
GAP = 2

DIM = "bright_black"
COLOURS = {"agent": "green", "caller": "cyan"}
MARKS = {"recorded": (" ✓", DIM), "cut": (" ▌", "bold red"), "": ("", "")}


class RichScreen:
    """Shows rows in the column of their worker."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._console.width = min(self._console.width, WIDEST)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def title(self, text: str, *lines: str) -> None:
        self._console.print()
        self._console.rule(Text(text, style="bold"), style=DIM)
        self._console.print(Text(" ".join(lines), style=DIM))
        self._console.print()

    def columns(self, pids: tuple[int, int]) -> None:
        heads = [
            Text.assemble((f"worker {number}", "bold"), (f"  process {pid}", DIM))
            for number, pid in enumerate(pids, 1)
        ]
        self._console.print(self._grid("", *heads))

    def row(self, row: Row) -> None:
        self._console.print(self._cells(row))

    def growing(self, row: Row | None) -> None:
        self._live.update(self._cells(row) if row else Text(), refresh=True)

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

    def _cells(self, row: Row) -> Table:
        cells = [Text(), Text()]
        cells[row.worker - 1] = _styled(row)
        return self._grid(row.when, *cells)

    def _grid(self, when: str, left: Text, right: Text) -> Table:
        column = (self._console.width - WHEN - 3 * GAP) // 2
        grid = Table.grid(padding=(0, GAP, 0, 0))
        grid.add_column(width=WHEN, justify="right", style=DIM)
        grid.add_column(width=column)
        grid.add_column(width=column)
        grid.add_row(when, left, right)
        return grid


def _styled(row: Row) -> Text:
    text, mark = row.text.strip(), MARKS[row.mark]
    if row.kind == "death":
        return Text(f"✗ {text}", style="bold red")
    if row.kind == "fact":
        return Text.assemble((f"· {text}", "yellow"), mark)
    colour = COLOURS[row.kind]
    return Text.assemble((f"{row.kind} ", f"bold {colour}"), (text, colour), mark)
