"""The options that several commands have, and what ends a help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DEFAULT_STORE",
    "AsJson",
    "CallId",
    "LogLevel",
    "Role",
    "SpoolDirectory",
    "State",
    "Store",
    "Url",
    "Yes",
    "examples",
]

DEFAULT_STORE = "sqlite:///./recall-data"


class State(StrEnum):
    """How a call may stand."""

    live = "live"
    lapsed = "lapsed"
    left = "left"
    ended = "ended"
    erased = "erased"


class Role(StrEnum):
    """What a key may do."""

    read = "read"
    agent = "agent"
    admin = "admin"


class LogLevel(StrEnum):
    """How much a server tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="RECALL_URL",
        help="Where the records are: sqlite:///DIRECTORY or https://SERVER.",
        show_default=DEFAULT_STORE,
    ),
]
Store = Annotated[
    str, typer.Option("--store", envvar="RECALL_STORE", help="The store that is served.")
]
CallId = Annotated[
    str, typer.Argument(metavar="CALL", help="The call's id: the room's name, whatever is in it.")
]
SpoolDirectory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        envvar="RECALL_SPOOL",
        help="Where workers of this machine spool.",
        show_default="./recall-spool",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For a program: JSON of a stable form.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def examples(*lines: str) -> str:
    """Return what the end of a help shows as it is."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
