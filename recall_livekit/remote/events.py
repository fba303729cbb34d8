"""What happens to the calls of a namespace, from a Recall server: one stream, opened anew."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import ValidationError

from ..engine.news import CallEvent
from ..errors import Closed, StoreError, StoreUnavailable
from ..models import Value
from ..seams import Clock
from ..settings import Settings
from .http import Http

__all__ = ["listen"]

logger = logging.getLogger("recall_livekit")


class _Line(Value):
    """What every line has, whatever a newer server tells in it."""

    event: str


async def listen(http: Http, clock: Clock, settings: Settings) -> AsyncGenerator[CallEvent, None]:
    """Yield events until `http` is closed. A stream that cannot be had is tried again with growing
    pauses, from `retry_first` to `retry_last`; each begins with `missed`."""
    pause, away = settings.retry_first, False
    while not http.closed:
        try:
            async with aclosing(_events(http, settings)) as events:
                async for event in events:
                    pause, away = settings.retry_first, _back(away)
                    if event is not None:
                        yield event
        except Closed:
            return
        except StoreError as error:
            away = away or _note(error)
        await clock.sleep(clock.jitter(pause))
        pause = min(2 * pause, settings.retry_last)


async def _events(http: Http, settings: Settings) -> AsyncGenerator[CallEvent | None, None]:
    """Yield the events of one stream, and None for each line that says something else."""
    async with aclosing(http.lines("/v1/events", silence=settings.stream_silence)) as lines:
        async for line in lines:
            if http.closed:
                return
            yield _event(line)


def _event(line: bytes) -> CallEvent | None:
    try:
        return CallEvent.model_validate_json(line)
    except ValidationError:
        pass
    try:
        _Line.model_validate_json(line)
    except ValidationError as error:
        raise StoreUnavailable("the stream is not one of a Recall server") from error
    return None


def _note(error: StoreError) -> bool:
    logger.warning("what happens to calls is not told: %s; trying again", error)
    return True


def _back(away: bool) -> bool:
    if away:
        logger.info("what happens to calls is told again")
    return False
