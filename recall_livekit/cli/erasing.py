"""``erase`` and ``prune``: what is gone afterwards is gone for ever, so both ask first."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..call_ids import check_call_id
from ..client import Recall
from ..engine.listing import CallSummary
from ..engine.liveness import Liveness
from ..errors import RecallError, StoreError
from .asking import ask
from .codes import Failed
from .opening import opened, reading, require
from .paper import Paper, note
from .progress import progress
from .texts import shown_id
from .times import lasting, moment

__all__ = ["erase", "prune"]

MEANING = (
    "Every word, note and result goes for ever, and no late writer brings one back. What stays: "
    "the call's name, and when who held it."
)
AT_ONCE = 10_000
"""Calls of one `prune`: what is found beyond them is left to the next."""


async def erase(url: str | None, call: str, *, yes: bool) -> None:
    """Erase one call.

    Raises:
        Failed: There is no such call, or the answer was no.
        RecallError: It is not done.
    """
    check_call_id(call)
    async with opened(url) as recall:
        await require(recall, call)
        live = (await reading(recall, call)).liveness is Liveness.LIVE
        if not yes:
            warning = " It is LIVE: its agent goes on without records." if live else ""
            await ask(f"Erase {shown_id(call)}? {MEANING}{warning}")
        await recall.erase(call)
    note(f"erased: {shown_id(call)}")


async def prune(url: str | None, seconds: float, *, dry_run: bool, yes: bool) -> None:
    """Erase every call that was not heard of for so long and that nobody has.

    Raises:
        Failed: The answer was no, or not all could be erased.
        RecallError: Not all could be listed; what could was erased.
    """
    async with opened(url) as recall:
        found, failed = await _stale(recall, time.time() - seconds)
        if dry_run:
            _list(found)
        elif found:
            if not yes:
                await ask(f"Erase {_count(found)} not heard of for {lasting(seconds)}? {MEANING}")
            await _erase_all(recall, found, seconds)
    if not found:
        note(f"no call to erase: none that nobody has was last heard of {lasting(seconds)} ago")
    if failed is not None:
        raise failed


async def _stale(recall: Recall, before: float) -> tuple[Sequence[CallSummary], StoreError | None]:
    found: list[CallSummary] = []
    failed: StoreError | None = None
    with progress("looking at calls") as advance:
        try:
            async for call in recall.summaries():
                advance(1)
                if _is_stale(call, before):
                    found.append(call)
                if len(found) == AT_ONCE:
                    note(f"there may be more than {AT_ONCE}: run it again for the rest")
                    break
        except StoreError as error:
            failed = error
    return sorted(found, key=lambda call: call.seen_at), failed


def _is_stale(call: CallSummary, before: float) -> bool:
    """Of one that tells no time nothing is known: it is kept."""
    return call.state not in ("live", "erased") and 0 < call.seen_at < before


def _list(found: Sequence[CallSummary]) -> None:
    paper = Paper()
    now = time.time()
    for call in found:
        heard = moment(call.seen_at, now)
        paper.line(f"{heard:<19}  {call.state:<6}  {call.turns:>5} turns  {shown_id(call.call_id)}")
    note(f"{_count(found)} would be erased")


async def _erase_all(recall: Recall, found: Sequence[CallSummary], seconds: float) -> None:
    erased, skipped, failures = 0, 0, 0
    with progress("erasing", len(found)) as advance:
        for call in found:
            try:
                if await _still_stale(recall, call):
                    await recall.erase(call.call_id)
                    erased += 1
                else:
                    skipped += 1
            except RecallError as error:
                failures += 1
                note(f"{shown_id(call.call_id)}: not erased: {error}")
            advance(1)
    again = f", {skipped} kept: they go on after all" if skipped else ""
    note(f"{erased} of {_count(found)} erased{again}")
    if failures:
        raise Failed(f"{failures} could not be erased: run it again")


async def _still_stale(recall: Recall, call: CallSummary) -> bool:
    """Look again: since it was listed somebody may have taken it."""
    now = await reading(recall, call.call_id)
    return now.liveness is not Liveness.LIVE and now.position == call.position


def _count(found: Sequence[CallSummary]) -> str:
    return f"{len(found)} call{'' if len(found) == 1 else 's'}"
