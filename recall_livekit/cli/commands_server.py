"""The words and options of `serve` and `key`."""

from __future__ import annotations

from typing import Annotated

import typer

from .options import DEFAULT_STORE, AsJson, LogLevel, Role, Store, examples

__all__ = ["keys", "server"]

server = typer.Typer(rich_markup_mode=None)
keys = typer.Typer(
    help="""Who may ask a Recall server, for which namespace, and what.

    Keys are kept, hashed, in the server's own store: run this where that store is.
    """,
    rich_markup_mode=None,
    no_args_is_help=True,
)


@server.command(
    epilog=examples(
        "recall-livekit serve",
        "recall-livekit serve --store sqlite:////var/lib/recall --listen :8480",
        "recall-livekit serve --retain default=30d --retain trials=24h",
    )
)
def serve(
    store: Store = DEFAULT_STORE,
    listen: Annotated[
        str, typer.Option(help="HOST:PORT, :PORT (every address), [IPV6]:PORT or unix:PATH.")
    ] = "127.0.0.1:8480",
    retain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMESPACE=30d",
            help="Erase the namespace's calls that were not heard of for so long (h, d, w). "
            "May be given for several.",
        ),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="What is told on stderr.")] = LogLevel.info,
) -> None:
    """Serve the records over HTTP, to workers on any machine.

    It speaks plain HTTP: put a proxy with TLS in front. Until a key is made only this machine
    may ask; others need one first (recall-livekit key create). SIGTERM drains it.
    """
    from .serving import serve as run_server

    run_server(store, listen, retain or [], log_level.value.upper())


@keys.command(
    "create",
    epilog=examples(
        'recall-livekit key create --name "support workers"',
        "export RECALL_API_KEY=$(recall-livekit key create --name ops --role admin)",
    ),
)
def key_create(
    name: Annotated[str, typer.Option(help="Whose it is, for a person who reads the list.")],
    namespace: Annotated[
        str, typer.Option(help="Whose calls it sees: a-z, 0-9 and -.")
    ] = "default",
    role: Annotated[
        Role, typer.Option(help="read: look only; agent: what a worker does; admin: erase too.")
    ] = Role.agent,
    store: Store = DEFAULT_STORE,
) -> None:
    """Make a key. The secret is alone on stdout, and is never shown again."""
    from .keys import create
    from .running import run

    run(create(store, namespace, role.value, name))


@keys.command("list")
def key_list(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """List every key that was ever made: id, namespace, role, when, whether it is valid, name."""
    from .keys import listed
    from .running import run

    run(listed(store, as_json))


@keys.command("revoke")
def key_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that key list shows.")],
    store: Store = DEFAULT_STORE,
) -> None:
    """Revoke a key: every server on the store refuses it within 2 seconds."""
    from .keys import revoke
    from .running import run

    run(revoke(store, key_id))
