"""Running a command's work: every end of it is an exit code, and a failure is one line."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import typer

from ..errors import RecallError
from .codes import CLOSED_PIPE, DONE, FAILED, INTERRUPTED, Failed, code_of
from .logs import SafeFormatter
from .paper import note, tolerate

__all__ = ["finish", "run"]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do the work on an event loop of its own, then end the command with its code.

    Raises:
        typer.Exit: Always, with the code.
    """
    _log_to_stderr()
    finish(lambda: asyncio.run(work))


def finish(work: Callable[[], None]) -> None:
    """Do the work, then end the command with its code.

    Raises:
        typer.Exit: Always, with the code.
    """
    tolerate()
    raise typer.Exit(_code(work))


def _code(work: Callable[[], None]) -> int:
    try:
        work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return CLOSED_PIPE
    except RecallError as error:
        return _said(error, code_of(error))
    except Failed as failed:
        return _said(failed, failed.code)
    except OSError as error:
        return _said(error, FAILED)
    return DONE


def _said(error: Exception, code: int) -> int:
    text = " ".join(str(error).split()) or type(error).__name__
    note(f"recall-livekit: {text}")
    return code


def _forget_stdout() -> None:
    """Nobody reads it: the interpreter's last flush must not fail on it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("recall-livekit: %(levelname)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
