"""The words and options of `doctor` and `spool`: what is on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import AsJson, SpoolDirectory, Url, examples

__all__ = ["machine", "spool"]

machine = typer.Typer(rich_markup_mode=None)
spool = typer.Typer(
    help="""What workers of this machine could not store, and keep on its disk.

    They store it themselves as soon as they can. What is left of dead ones can be stored here.
    """,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@machine.command(
    epilog=examples("recall-livekit doctor", "recall-livekit doctor --url https://recall.internal")
)
def doctor(url: Url = None, as_json: AsJson = False) -> None:
    """Check what is wrong, and say what to do about it.

    One line a check: ok, warn or fail. It looks at the versions, the environment, the directory
    or the server where the records are, and LiveKit's server if LIVEKIT_URL names one. It exits
    with 1 if a check failed.
    """
    from .doctor import doctor as examine
    from .running import run

    run(examine(url, as_json=as_json))


@spool.command("status")
def spool_status(
    directory: SpoolDirectory = None, url: Url = None, as_json: AsJson = False
) -> None:
    """List what waits on this machine's disk, a line a file.

    held: a living worker has it. waits: its worker is gone. aside: it cannot be stored as it is,
    and a person has to look. newer: of a newer version. unreadable: no spool file.
    """
    from .running import run
    from .spooled import list_spooled

    run(list_spooled(url, directory, as_json=as_json))


@spool.command(
    "drain",
    epilog=examples("recall-livekit spool drain --url https://recall.internal"),
)
def spool_drain(
    directory: SpoolDirectory = None,
    url: Url = None,
    aside: Annotated[
        bool, typer.Option("--aside", help="Try again what was set aside, too.")
    ] = False,
) -> None:
    """Store what waits for the address and no living worker has.

    It may be done again and again: nothing is stored twice. It exits with 3 if something could
    not be stored yet, and with 1 if a person has to look at it.
    """
    from .running import run
    from .spooled import drain

    run(drain(url, directory, aside=aside))
