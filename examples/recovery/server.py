"""The Recall server of the demo: `python -m recovery.server STORE_URL PORT`.

It is the product's own, as `recall-livekit serve` runs it; here it also ends with the demo.
"""

from __future__ import annotations

import sys

import anyio

from recall_livekit.server.logs import log_as_json
from recall_livekit.server.options import ServeOptions
from recall_livekit.server.serve import serve

from .line import Line


async def main(store_url: str, port: str) -> None:
    line = Line()
    options = ServeOptions(store_url=store_url, port=int(port))
    await serve(options, listening=lambda listening: line.tell("listening", url=listening.url))


if __name__ == "__main__":
    log_as_json()
    anyio.run(main, sys.argv[1], sys.argv[2], backend_options={"use_uvloop": True})
