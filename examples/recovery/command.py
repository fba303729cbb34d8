"""A demo as a command: its options, its end, and which model its workers use."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from recall_livekit.errors import RecallError
from recall_livekit.testing.leash import NotStarted

from .process import DemoFailed
from .screen import open_screen
from .timeline import Screen

__all__ = ["START_S", "has_key", "run_demo"]

START_S = 60.0
"""The longest that processes may take to load everything."""
LONGEST_S = 300.0

Demo = Callable[[Screen, Path], Awaitable[int]]
"""Shows itself, keeps its files in a directory, and returns the exit code."""


def has_key() -> bool:
    """Whether the workers use a real model."""
    return bool(os.environ.get("OPENAI_API_KEY"))


def run_demo(demo: Demo, about: str, *, real_model: bool = True) -> int:
    """Run it as the command line says; return the exit code. With a key its model may be real."""
    options = arguments(about)
    if real_model and has_key() and not find_spec("livekit.plugins.openai"):
        print('OPENAI_API_KEY is set: pip install ".[openai]", or unset it')
        return 2
    if keep := options.keep and options.keep.resolve():
        keep.mkdir(parents=True, exist_ok=True)
    screen = open_screen(options.plain)
    try:
        return asyncio.run(run(demo, screen, keep))
    except (DemoFailed, NotStarted, RecallError, TimeoutError) as error:
        screen.say(str(error) or "it took too long", good=False)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    finally:
        screen.close()


async def run(demo: Demo, screen: Screen, keep: Path | None) -> int:
    """Run it, bounded; however it ends, its processes end first."""
    task = asyncio.current_task()
    assert task is not None
    for end in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(end, task.cancel)
    place = nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="recall-demo-")
    with place as directory:
        async with asyncio.timeout(LONGEST_S):
            return await demo(screen, Path(directory))


def arguments(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep records and logs in DIR")
    parser.add_argument("--plain", action="store_true", help="plain lines, no colours")
    return parser.parse_args()
