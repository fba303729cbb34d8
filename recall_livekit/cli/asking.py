"""Asking a person before something is done that nothing brings back."""

from __future__ import annotations

import asyncio
import sys

from .codes import USAGE, Failed
from .paper import note

__all__ = ["ask"]


async def ask(question: str) -> None:
    """Return if the answer is yes. Ctrl-C ends the wait at once.

    Raises:
        Failed: It is no, or nobody is there to be asked.
    """
    if not sys.stdin.isatty():
        raise Failed("nobody is there to be asked: give --yes", USAGE)
    note(f"{question} [y/N]")
    await _readable(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Failed("nothing was erased")


async def _readable(terminal: int) -> None:
    """Wait for a line without blocking in it, which no Ctrl-C would interrupt."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(terminal, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(terminal)
