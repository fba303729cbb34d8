"""``show``: all that is recorded of one call, for a person or as JSON."""

from __future__ import annotations

from typing import Literal

from ..call_ids import check_call_id
from ..client import Recall
from ..engine.history import HistoryFold
from ..engine.listing import CallStanding, summary
from ..engine.noted import History
from ..models import Partial, Value
from .codes import USAGE, Failed
from .follow import follow, follow_json
from .opening import folded, opened, reading
from .page import write_page
from .paper import Paper, put
from .texts import shown_id

__all__ = ["Shown", "show"]


class Shown(Value):
    """What ``show --json`` writes. `state` and `partials` are of now: there are none of an
    earlier position. `history` has the runs that were asked for, and every lease."""

    v: Literal[1] = 1
    call_id: str
    at: int | None = None
    state: CallStanding | None = None
    history: History
    partials: tuple[Partial, ...] = ()


async def show(
    url: str | None, call: str, *, at: int | None, run: int | None, following: bool, as_json: bool
) -> None:
    """Show the call as it stands, or stood at position `at`; then go on, if it is followed.

    Raises:
        Failed: There is no such call, position or run.
        RecallError.
    """
    check_call_id(call)
    if following and (at is not None or run is not None):
        raise Failed("--follow goes on from now: leave out --at and --run", USAGE)
    async with opened(url) as recall:
        if following and as_json:
            await follow_json(recall, call)
        fold = await folded(recall, call, at)
        shown = await _shown(recall, call, fold, at, run)
        if as_json:
            put(shown.model_dump_json())
            return
        paper = Paper()
        write_page(paper, shown.call_id, shown.state, shown.history, shown.partials, run)
        if following:
            await follow(recall, call, fold, paper)


async def _shown(
    recall: Recall, call: str, fold: HistoryFold, at: int | None, run: int | None
) -> Shown:
    history = fold.history()
    if at is not None and history.position <= at:
        raise Failed(f"{shown_id(call)} has positions 0 to {history.position - 1}, not {at}")
    if run is not None:
        history = _only(history, run, call)
    if at is not None:
        return Shown(call_id=call, at=at, history=history)
    now = await reading(recall, call)
    state = summary(fold, call, now.liveness, 0.0).state
    of_newest = run is None or run == now.current_run
    partials = now.briefing.partials if of_newest else ()
    return Shown(call_id=call, state=state, history=history, partials=partials)


def _only(history: History, run: int, call: str) -> History:
    runs = tuple(one for one in history.runs if one.number == run)
    if not runs:
        known = ", ".join(str(one.number) for one in history.runs) or "none"
        raise Failed(f"{shown_id(call)} has no run {run}: it has {known}")
    return history.model_copy(update={"runs": runs})
