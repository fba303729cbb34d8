"""Processes of a benchmark's own: they tell it what happened when, and die with it.

`python -m tests.benchmarks.children MODULE FUNCTION [ARGUMENT ...]` calls a function of a topic.
All processes of a machine share the monotonic clock, so their times can be compared.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from recall_livekit.testing.leash import eventually, leashed

ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


class Child:
    """A child process: what it told, and signals to it."""

    def __init__(self, log: Path) -> None:
        self.pid = 0
        self._log = log

    async def told(self, word: str, *, within: float = 30.0) -> float:
        """The number that the child told with this word; waits for it."""

        async def found() -> list[float]:
            *lines, _ = self._log.read_text().split("\n")  # the last one is not whole yet
            said = [line.split() for line in lines]
            return [float(line[1]) for line in said if line[:1] == [word]]

        try:
            return (await eventually(found, within=within))[0]
        except TimeoutError:
            raise TimeoutError(f"no {word!r} after {within} s:\n{self._log.read_text()}") from None

    def send(self, what: signal.Signals) -> None:
        os.kill(self.pid, what)


@asynccontextmanager
async def child(directory: Path, run: Callable[..., None], *args: object) -> AsyncIterator[Child]:
    """Calls `run`, a function of a module, in a process of its own, no longer than this block.

    What it prints goes to a file in `directory`.
    """
    log = directory / f"child-{next(_numbers)}.log"
    words = (run.__module__, run.__name__, *map(str, args))
    command = (sys.executable, "-m", "tests.benchmarks.children", *words)
    async with leashed(*command, log=log, env=_environment()):
        started = Child(log)
        started.pid = int(await started.told("pid"))
        yield started


def tell(word: str, number: float) -> None:
    """Says it to the parent."""
    print(word, number, flush=True)


def _environment() -> dict[str, str]:
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def main(module: str, function: str, *arguments: str) -> None:
    tell("pid", os.getpid())
    run: Any = getattr(import_module(module), function)
    with suppress(KeyboardInterrupt):
        run(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
