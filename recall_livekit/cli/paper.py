"""Where a command writes for a person: a terminal with colours and a width, or a pipe without.

Everything passes `safe` here, so that no call id, turn or label can drive the terminal. Errors and
notes go to stderr, so that stdout has only what was asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from .texts import json_safe, safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Paper", "Span", "note", "put", "stderr_console", "tolerate"]


class Span(NamedTuple):
    """A piece of a line, and how it looks on a terminal (a style of rich)."""

    text: str
    style: str = ""


Piece = Span | str


class Paper:
    """Writes lines to stdout."""

    def __init__(self) -> None:
        """Find out who reads it."""
        self._console: Console | None = _console() if sys.stdout.isatty() else None

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking."""
        return self._console is not None

    @property
    def console(self) -> Console:
        """The terminal. Only if there is one."""
        assert self._console is not None
        return self._console

    def line(self, *pieces: Piece, body: str = "", marks: str = "") -> None:
        """Write a line. `body` follows the pieces, and wherever it wraps or has lines of its own
        they stand below its beginning; `marks` follow it."""
        if self._console is None:
            self._plain([_span(piece) for piece in pieces], body, marks)
        else:
            self._coloured(self._console, [_span(piece) for piece in pieces], body, marks)

    def heading(self, text: str) -> None:
        """Begin a part."""
        self.line()
        self.line(Span(text, "bold"))

    def _plain(self, pieces: list[Span], body: str, marks: str) -> None:
        head = "".join(safe(piece.text) for piece in pieces)
        first, *rest = (safe(line) for line in (body.splitlines() or [""]))
        lines = [head + first, *(" " * len(head) + line for line in rest)]
        sys.stdout.write("\n".join(lines).rstrip() + (f" {safe(marks)}" if marks else "") + "\n")

    def _coloured(self, console: Console, pieces: list[Span], body: str, marks: str) -> None:
        from rich.text import Text

        head = Text.assemble(*((safe(piece.text), piece.style) for piece in pieces))
        text = Text("\n".join(map(safe, body.splitlines())))
        if marks:
            text.append(f" {safe(marks)}", "yellow")
        for line in _hanging(console, head, text):
            console.print(line, soft_wrap=True, highlight=False)


def _hanging(console: Console, head: Text, body: Text) -> Iterable[Text]:
    from rich.text import Text

    width = console.width - head.cell_len
    if width < 20:
        return [head + body]
    lines = body.wrap(console, width) if body.plain else [Text()]
    indent = Text(" " * head.cell_len)
    return [(head if number == 0 else indent) + line for number, line in enumerate(lines)]


def put(line: str) -> None:
    """Write a line of JSON to stdout."""
    sys.stdout.write(json_safe(line) + "\n")


def note(text: str) -> None:
    """Tell a person something beside the output."""
    sys.stderr.write(f"{safe(text)}\n")
    sys.stderr.flush()


def stderr_console() -> Console:
    """Return a terminal for progress and questions."""
    return _console(stderr=True)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(stderr=stderr, highlight=False, markup=False, emoji=False)


def _span(piece: Piece) -> Span:
    return piece if isinstance(piece, Span) else Span(piece)


def tolerate() -> None:
    """Escape what the output's encoding lacks, rather than fail on it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
