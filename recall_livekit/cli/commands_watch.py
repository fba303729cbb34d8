"""The words and options of `watch`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .options import LogLevel, Url, examples

__all__ = ["watcher"]

watcher = typer.Typer(rich_markup_mode=None)


class LogFormat(StrEnum):
    """For whom the log is."""

    text = "text"
    json = "json"


class Standby(StrEnum):
    """Where a standby waits."""

    following = "following"
    joined = "joined"


@watcher.command(
    epilog=examples(
        "recall-livekit watch --livekit-url ws://livekit:7880",
        "recall-livekit watch --agent-name support --serve-rooms 'support-*' --standby joined",
        "recall-livekit watch --fallback-agent sorry --listen :8482 --log-format json",
    )
)
def watch(
    livekit_url: Annotated[
        str | None,
        typer.Option(
            envvar="LIVEKIT_URL",
            help="LiveKit's server: ws://HOST:PORT or wss://HOST.",
        ),
    ] = None,
    url: Url = None,
    agent_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The agent that is dispatched.",
            show_default="as the room's first dispatch",
        ),
    ] = None,
    serve_rooms: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help="Rooms of these names must have an agent as soon as a caller is in them, even if "
            "none was ever recorded there. May be given for several.",
        ),
    ] = None,
    standby: Annotated[
        Standby | None,
        typer.Option(
            help="Keep a second agent ready for every call: following the records only, or in the "
            "room already.",
            show_default="none",
        ),
    ] = None,
    fallback_agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Dispatched once into a call that every other agent died of.",
            show_default="none",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Take webhooks (/livekit/webhook) and tell /healthz, /readyz and /metrics there.",
            show_default="nowhere",
        ),
    ] = None,
    cloud: Annotated[
        bool, typer.Option("--cloud", help="Watch LiveKit Cloud, which restarts jobs by itself.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How it is told.")] = LogFormat.text,
    log_level: Annotated[LogLevel, typer.Option(help="What is told on stderr.")] = LogLevel.info,
) -> None:
    """Bring the next worker into calls whose agent died, on a LiveKit server of your own.

    The key is in LIVEKIT_API_KEY and LIVEKIT_API_SECRET. Any number may watch: one acts, another
    takes over when it ends. A server that cannot be reached is tried until it can. SIGTERM ends
    it.
    """
    from .watching import Watch
    from .watching import watch as begin

    asked = Watch(
        livekit_url=livekit_url,
        url=url,
        agent_name=agent_name,
        serve_rooms=tuple(serve_rooms or ()),
        standby=None if standby is None else standby.value,
        fallback_agent=fallback_agent,
        listen=listen,
        cloud=cloud,
    )
    begin(asked, as_json=log_format is LogFormat.json, level=log_level.value.upper())
