"""``spool``: what workers of this machine could not store, and storing it after all."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict
from pathlib import Path

from pydantic_core import to_json

from ..client import Recall
from ..remote.address import is_remote
from ..seams import SystemClock
from ..spool.place import server_place, spool_directory
from ..spool.spool import Drained, Spool, place_tag
from ..spool.status import FileStatus, status
from .codes import FAILED, UNREACHABLE, Failed
from .opening import address, described, directory_of
from .paper import Paper, Span, note, put
from .texts import shown_id
from .times import ago

__all__ = ["drain", "found_in", "list_spooled", "place_of"]

STYLES = {
    "waits": "yellow",
    "aside": "bold red",
    "newer": "red",
    "unreadable": "bold red",
    "drained": "green",
}
LEFT = ("waits", "aside", "newer")


def place_of(url: str) -> str:
    """Return the place that an address names, as a worker's spool is marked with it.

    Raises:
        InvalidSettings: It is no address.
    """
    return server_place(url) if is_remote(url) else f"sqlite:///{directory_of(url)}"


def found_in(directory: Path) -> list[FileStatus]:
    """Return what is in the directory, the oldest first.

    Raises:
        OSError: It cannot be read.
    """
    return list(status(directory))


# --- status -------------------------------------------------------------------------------------


async def list_spooled(url: str | None, given: Path | None, *, as_json: bool) -> None:
    """List what waits on this machine, of every place.

    Raises:
        OSError: The directory cannot be read.
        InvalidSettings: The address is none.
    """
    directory, paper, count = spool_directory(given), Paper(), 0
    tag = place_tag(place_of(address(url)))
    for file in status(directory):
        count += 1
        if as_json:
            put(to_json(asdict(file)).decode())
        else:
            _line(paper, file, "" if file.tag == tag else "of another address")
    if not count:
        note(f"nothing is spooled in {directory}")


def _line(paper: Paper, file: FileStatus, marks: str) -> None:
    now = time.time()
    since = "" if file.said_at is None else f", said {ago(file.said_at, now)}"
    count = f"{file.records} record{'' if file.records == 1 else 's'}"
    paper.line(
        Span(f"{file.state:<12}", STYLES.get(file.state, "")),
        body=f"{_named(file)}  {count}{since}, {file.size} bytes",
        marks=f"[{marks}]" if marks else "",
    )


# --- drain --------------------------------------------------------------------------------------


async def drain(url: str | None, given: Path | None, *, aside: bool) -> None:
    """Store what waits for this address and no living process has.

    Raises:
        Failed: Something is left.
        RecallError.
    """
    where, directory = address(url), spool_directory(given)
    files = found_in(directory)
    calls = {file.name: _named(file) for file in files}
    async with Recall.open(where) as recall:
        with _each_has_a_line():
            drained = await _drained(recall, where, directory, calls, aside=aside)
    elsewhere = sum(file.tag != place_tag(place_of(where)) for file in files)
    if elsewhere:
        note(f"{_files(elsewhere)} of another address: drain with its --url")
    if not drained:
        note(f"nothing in {directory} waits for {described(where)}")
    left = [one for one in drained if one.outcome in LEFT]
    if left:
        again = any(one.outcome == "waits" for one in left)
        text = f"{_files(len(left))} not stored" + ("" if again else ": a person has to look")
        raise Failed(text, UNREACHABLE if again else FAILED)


@contextmanager
def _each_has_a_line() -> Iterator[None]:
    """Keep out of the way what the log says of each file: it has a line of its own."""
    logger = logging.getLogger("recall_livekit")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


async def _drained(
    recall: Recall,
    where: str,
    directory: Path,
    calls: Mapping[str, str],
    *,
    aside: bool,
) -> Sequence[Drained]:
    spool = Spool.open(
        directory,
        address=place_of(where),
        transport=recall._transport,
        clock=SystemClock(),
        settings=recall.settings,
    )
    paper, drained = Paper(), []
    try:
        async with aclosing(spool.drain_all(aside=aside)) as ones:
            async for one in ones:
                drained.append(one)
                _tell(paper, one, calls.get(one.name, one.name))
    finally:
        await spool.aclose()
    return drained


def _tell(paper: Paper, one: Drained, call: str) -> None:
    stored = f", {one.records} stored" if one.records or one.outcome == "drained" else ""
    missing = f", {one.missing} damaged on the disk" if one.missing else ""
    why = f": {one.why}" if one.why else ""
    head = Span(f"{one.outcome:<12}", STYLES.get(one.outcome, ""))
    paper.line(head, body=f"{call}{stored}{missing}{why}")


def _named(file: FileStatus) -> str:
    return file.name if file.call_id is None else shown_id(file.call_id)


def _files(count: int) -> str:
    return f"{count} file{' is' if count == 1 else 's are'}"
