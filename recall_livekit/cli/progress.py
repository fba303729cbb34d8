"""How far something long is: a bar on stderr where a person looks, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .paper import stderr_console

__all__ = ["progress"]


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield what is called with each step's size. Without a total it counts."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns.append(MofNCompleteColumn() if total is not None else TextColumn("{task.completed}"))
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
