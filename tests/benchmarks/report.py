"""What was measured, for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .registry import Row

HEAD = ("name", "value", "unit", "floor", "ratio", "target")


def print_table(rows: Sequence[Row]) -> None:
    if sys.stdout.isatty():
        _print_rich(rows)
    else:
        _print_plain(rows)


def write_results(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([_result(row) for row in rows], indent=2) + "\n")


def _result(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "value": round(row.value, 4),
        "unit": row.unit,
        "floor": round(row.floor, 4),
        "ratio": round(row.ratio, 4),
    }


def _cells(row: Row) -> tuple[str, ...]:
    figures = (_figure(row.value), row.unit, _figure(row.floor), f"{row.ratio:.2f}")
    return (row.name, *figures, row.target)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _print_plain(rows: Sequence[Row]) -> None:
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        rest = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        print(name.ljust(widths[0]), *rest, sep="  ")


def _print_rich(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Recall against the floor of the same work")
    for column in HEAD:
        table.add_column(column, justify="left" if column == "name" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    Console().print(table)
