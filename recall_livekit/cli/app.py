"""The command: what its parts are, and its version."""

from __future__ import annotations

from typing import Annotated

import typer

from .commands_calls import calls_app
from .commands_machine import machine, spool
from .commands_server import keys, server
from .commands_watch import watcher
from .options import examples

__all__ = ["app"]

CODES = (
    "\n\nExit codes: 0 done; 1 not done, or not found; 2 wrong usage; 3 the store or server does "
    "not answer, try again; 130 interrupted; 141 the reader of the output went away."
)
PLAIN = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

app = typer.Typer(
    help="""Serve what is recorded of voice calls; look at it, export, erase and mend it.

    The records are at --url or RECALL_URL: a directory of this machine (sqlite:///./recall-data,
    the default) or a Recall server (https://...), whose key is in RECALL_API_KEY.
    """,
    epilog=examples(
        "recall-livekit calls --state live",
        "recall-livekit show my-room --follow",
        "recall-livekit doctor",
    )
    + CODES,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=PLAIN,
)
for part in (server, watcher, calls_app, machine):
    app.add_typer(part)
app.add_typer(keys, name="key")
app.add_typer(spool, name="spool")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"recall-livekit {version('recall-livekit')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """See the help of `app`."""
