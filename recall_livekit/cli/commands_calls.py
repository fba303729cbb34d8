"""The words and options of what looks at calls and erases them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson, CallId, State, Url, Yes, examples

__all__ = ["calls_app"]

calls_app = typer.Typer(rich_markup_mode=None)


@calls_app.command(
    epilog=examples(
        "recall-livekit calls --state lapsed",
        "recall-livekit calls --json | jq -r 'select(.turns > 100) | .call_id'",
    )
)
def calls(
    url: Url = None,
    state: Annotated[State | None, typer.Option(help="Only those that stand so.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Only so many, the newest.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the calls, the ones heard of last first.

    live: a living agent has it. lapsed: it goes on, and nobody has it. left: the caller left.
    In a pipe each is a line of columns parted by tabs: call, state, run, turns, last heard of,
    opened, agent. As JSON each is a line.
    """
    from .calls import list_calls
    from .running import run

    run(list_calls(url, state=state.value if state else None, limit=limit, as_json=as_json))


@calls_app.command(
    epilog=examples(
        "recall-livekit show my-room",
        "recall-livekit show my-room --at 41 --json",
        'recall-livekit show --follow -- "-an odd name"',
    )
)
def show(
    call: CallId,
    url: Url = None,
    at: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="As it stood when this was its newest entry."),
    ] = None,
    run_number: Annotated[
        int | None, typer.Option("--run", min=1, metavar="N", help="That run, not the newest.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a call: what was said, its state, and who had it.

    Actions, userdata and where it was cut off as well. Marks say how a record counts.
    [late]: written when another writer had taken the call, so it is history and no state.
    [provisional]: written without the lease. [waiting]: it counts from the next lease on.
    [cut off here]: the words at which somebody was interrupted by a crash.
    [not answered], [never heard]: said, and no part of the conversation that the model was given.
    """
    from .running import run
    from .show import show as show_call

    run(show_call(url, call, at=at, run=run_number, following=follow, as_json=as_json))


@calls_app.command(epilog=examples("recall-livekit export my-room -o my-room.jsonl"))
def export(
    call: CallId,
    url: Url = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write a call's chain as JSON lines, to keep it or load it.

    The first line is a header with a version, the next are the entries; then come the words under
    way and the outputs, which are kept beside the chain. A file is there whole or not at all, and
    only its owner may read it.
    """
    from .export import export as export_call
    from .running import run

    run(export_call(url, call, output, force=force))


@calls_app.command(epilog=examples("recall-livekit fetch my-room 12/0 -o report.txt"))
def fetch(
    call: CallId,
    ref: Annotated[str, typer.Argument(metavar="REF", help="As `show` tells it, 12/0 for one.")],
    url: Url = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> None:
    """Write an output: a long result of a tool that is kept beside a call's records.

    A file and a pipe get the text as it is; at a terminal what would drive it is escaped.
    """
    from .fetch import fetch as fetch_output
    from .running import run

    run(fetch_output(url, call, ref, output, force=force))


@calls_app.command(epilog=examples("recall-livekit erase my-room"))
def erase(call: CallId, url: Url = None, yes: Yes = False) -> None:
    """Erase a call for ever.

    Every word, note and result goes, and no late writer brings one back. What stays: the call's
    name, and when who held it. Done only if the exit code is 0; run it again if it is not.
    """
    from .erasing import erase as erase_call
    from .running import run

    run(erase_call(url, call, yes=yes))


@calls_app.command(
    epilog=examples(
        "recall-livekit prune --older-than 30d --dry-run",
        "recall-livekit prune --older-than 30d --yes",
    )
)
def prune(
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Not heard of for so long: 36h, 30d, 8w.")
    ],
    url: Url = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    yes: Yes = False,
) -> None:
    """Erase every call that was not heard of for long.

    Never a live one, and each as erase does. It asks first, and says how many.
    """
    from .erasing import prune as prune_calls
    from .running import run
    from .times import seconds_of

    try:
        seconds = seconds_of(older_than)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--older-than") from None
    run(prune_calls(url, seconds, dry_run=dry_run, yes=yes))
