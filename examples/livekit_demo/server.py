"""The livekit-server that the demo runs."""

from __future__ import annotations

from pathlib import Path

from recovery.process import DemoFailed

from recall_livekit.testing.livekit_server import LiveKitServer, find_livekit_server

__all__ = ["livekit_server"]

MISSING = (
    "no livekit-server here. It is LiveKit's own, in Go; `make demo-livekit` builds it where Go "
    "1.24 or newer is installed (once, two minutes). Or download it from LiveKit's releases, and "
    "name it: LIVEKIT_SERVER_BIN=/path/to/livekit-server make demo-livekit"
)


def livekit_server(directory: Path) -> LiveKitServer:
    """Return one that runs once it is entered; its files are in `directory`.

    Raises:
        DemoFailed: There is no binary; says how to get it.
    """
    try:
        found = find_livekit_server()
    except FileNotFoundError as error:
        raise DemoFailed(str(error)) from None
    if found is None:
        raise DemoFailed(MISSING)
    return LiveKitServer(directory)
