"""The two screens: rich on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .strips import Strips
from .timeline import COLUMNS, Gauge, Row, Screen

__all__ = ["PlainScreen", "open_screen"]

MARKS = {
    "": "",
    "recorded": " [recorded]",
    "cut": " --",
    "waiting": " [waiting]",
    "going on": " ...",
}
WIDTH = 100
ASCII = str.maketrans("▁▂▃▄▅▆▇█✗·", "..::==##x_")


def open_screen(plain: bool) -> Screen:
    """Return the screen that fits where the output goes."""
    if plain or not sys.stdout.isatty():
        return PlainScreen()
    try:
        from .rich_screen import RichScreen
    except ImportError:
        print('(two columns and colours: pip install ".[demo]")')
        return PlainScreen()
    return RichScreen()


class PlainScreen:
    """One line for each row, no control codes."""

    def __init__(self) -> None:
        self._names: Sequence[str] = COLUMNS

    def title(self, text: str, *lines: str) -> None:
        self._print("", f"== {text}", *lines, "")

    def columns(self, pids: tuple[int, ...], names: Sequence[str] = COLUMNS) -> None:
        self._names = names
        heads = [f"{name} is process {pid}" for name, pid in zip(names, pids, strict=False)]
        self._print(f"({', '.join(heads)})")

    def row(self, row: Row) -> None:
        who = {"agent": "agent:  ", "caller": "caller: ", "death": "x "}.get(row.kind, "- ")
        text = f"{row.text.strip()}{MARKS[row.mark]}{row.remark and f' ({row.remark})'}"
        self._print(f"{row.when:>8}  {self._names[row.column - 1]:8}  {who}{text}")

    def growing(self, row: Row | None) -> None:
        """A line cannot grow; it comes when it is whole."""

    def gauge(self, gauge: Gauge) -> None:
        """A line cannot move; what it would show is in the rows too."""

    def strips(self, strips: Strips, final: bool = False) -> None:
        """A line cannot grow; they come when they are whole."""
        if not final:
            return
        left = 2 + max(len(strip.name) for strip in strips.strips)
        self._print("", " " * left + strips.ruler(WIDTH - left))
        for strip in strips.strips:
            drawn = strips.drawn(strip, WIDTH - left).translate(ASCII).rstrip()
            self._print(f"{strip.name:{left}}{drawn}{strip.remark and f'  {strip.remark}'}")
        self._print("")

    def say(self, text: str, good: bool | None = None) -> None:
        sign = {True: "OK: ", False: "FAULT: ", None: ""}[good]
        self._print(f"{sign}{text}")

    def table(self, rows: list[tuple[str, str, str]]) -> None:
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            self._print("  ".join(cells).rstrip())

    def close(self) -> None:
        """Nothing was taken."""

    def _print(self, *lines: str) -> None:
        print(*lines, sep="\n", flush=True)
