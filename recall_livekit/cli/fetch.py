"""``fetch``: a long text that is kept beside a call's records, whole."""

from __future__ import annotations

import sys
from pathlib import Path

from ..call_ids import check_call_id
from ..errors import OutputMissing
from .codes import Failed
from .files import destination, writing
from .opening import opened, require
from .texts import safe

__all__ = ["fetch"]


async def fetch(url: str | None, call: str, ref: str, output: Path | None, *, force: bool) -> None:
    """Write the text to the file, or to stdout. A terminal is shown it, and not driven by it.

    Raises:
        Failed: There is no such call or output, or the file exists.
        RecallError, OSError.
    """
    check_call_id(call)
    output = destination(output, force=force)
    async with opened(url) as recall:
        await require(recall, call)
        try:
            text = await recall.fetch_output(call, ref)
        except OutputMissing as error:
            raise Failed(f"{error}; `recall-livekit show` lists the outputs of a call") from error
    if output is None and sys.stdout.isatty():
        text = "\n".join(map(safe, text.split("\n"))) + "\n"
    with writing(output, force=force) as write:
        write(text)
