"""The command `recall-livekit`: serve, and look at, export, erase and mend what is recorded.

What a command needs is imported when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit with its code (see `codes`)."""
    from .app import app

    app(prog_name="recall-livekit")
