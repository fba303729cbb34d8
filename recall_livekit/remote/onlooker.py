"""What can be known of the calls of a Recall server, by reading alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from pydantic import ValidationError

from ..call_ids import encode_call_id
from ..engine.entries import Entry
from ..engine.listing import CallSummary
from ..engine.outputs import checked_ref
from ..engine.requests import Reading
from ..engine.runs import Origin
from ..errors import InvalidCallId, OutputMissing, StoreUnavailable
from ..models import Turn
from ..problems import error_of
from ..settings import Settings
from ..wire import ENTRIES, TURNS, EntriesAnswer, OutputText, TurnsAnswer, calls_line
from .http import Http
from .refusals import within
from .verdicts import Verdicts

__all__ = ["HttpOnlooker", "path_of"]

LONG_WAIT = 35.0
"""The longest that a request takes which reads or rewrites a whole call (seconds): a little more
than a server gives itself."""


class HttpOnlooker:
    """Reads, lists and erases calls."""

    def __init__(self, http: Http, settings: Settings, verdicts: Verdicts) -> None:
        """Ask nothing yet."""
        self._http = http
        self._settings = settings
        self._verdicts = verdicts

    async def read(self, call: str, origin: Origin | None = None) -> Reading:
        """Return the call as a worker of this origin should see it, or, without one, as it is.

        Raises:
            InvalidCallId, StoreError.
        """
        if origin is None:
            return await self._read(call, {})
        reading = await self._read(call, _params(self._verdicts.told(call, origin)))
        if self._verdicts.judge(call, origin, reading):
            reading = await self._read(call, _params(self._verdicts.told(call, origin)))
        return reading

    async def turns(self, call: str) -> Sequence[Turn]:
        """Return every turn of the current run, in pages from its end.

        Raises:
            InvalidCallId, StoreError.
        """
        turns: list[Turn] = []
        more = True
        while more:
            params = {"limit": TURNS} | ({"before": turns[0].seq} if turns else {})
            page = await self._http.ask(
                TurnsAnswer,
                "GET",
                f"{path_of(call)}/turns",
                params=params,
                raises=(InvalidCallId,),
                seconds=LONG_WAIT,
            )
            turns[:0] = page.turns
            more = page.more and bool(page.turns)
        return tuple(turns)

    async def entries(self, call: str, start: int, limit: int) -> Sequence[Entry]:
        """Return at most `limit` entries from position `start` on.

        Raises:
            InvalidCallId, StoreError.
        """
        entries: list[Entry] = []
        while len(entries) < limit:
            params = {"start": start + len(entries), "limit": min(limit - len(entries), ENTRIES)}
            page = await self._http.ask(
                EntriesAnswer,
                "GET",
                f"{path_of(call)}/entries",
                params=params,
                raises=(InvalidCallId,),
            )
            entries += page.entries
            if not page.entries:
                break
        return entries

    async def get_output(self, call: str, ref: str) -> str:
        """Return the text that is kept under the ref.

        Raises:
            OutputMissing: There is none, or it was erased.
            InvalidCallId, StoreError.
        """
        path = f"{path_of(call)}/outputs/{checked_ref(ref)}"
        raises = (InvalidCallId, OutputMissing)
        return (await self._http.ask(OutputText, "GET", path, raises=raises)).text

    async def calls(self) -> AsyncGenerator[str, None]:
        """Yield the id of every call.

        Raises:
            StoreError.
        """
        async with aclosing(self.summaries()) as summaries:
            async for summary in summaries:
                yield summary.call_id

    async def summaries(self) -> AsyncGenerator[CallSummary, None]:
        """Yield how every call stands.

        Raises:
            StoreError: Also in the middle of it.
        """
        async with aclosing(
            self._http.lines("/v1/calls", silence=self._settings.request_wait)
        ) as lines:
            async for line in lines:
                yield _summary(line)

    async def erase(self, call: str) -> None:
        """Erase the call's content for ever.

        Raises:
            InvalidCallId.
            StoreError: It is not known to be done; erase again.
        """
        await self._http.tell("DELETE", path_of(call), seconds=LONG_WAIT, raises=(InvalidCallId,))

    # --- inside -------------------------------------------------------------------------------

    async def _read(self, call: str, params: dict[str, str | int | bool]) -> Reading:
        params["tokens"] = self._settings.briefing_tokens
        return await self._http.ask(
            Reading, "GET", path_of(call), params=params, raises=(InvalidCallId,)
        )


def path_of(call: str) -> str:
    """Return where the server has this call."""
    return f"/v1/calls/{encode_call_id(call)}"


def _params(origin: Origin) -> dict[str, str | int | bool]:
    params: dict[str, str | int | bool] = {"worker": True}
    if origin.room_sid is not None:
        params["room_sid"] = origin.room_sid
    if origin.caller is not None:
        params["caller"] = origin.caller
    if origin.verdict is not None:
        params["verdict_run"], params["verdict"] = origin.verdict
    return params


def _summary(line: bytes) -> CallSummary:
    """Return the call that a line of the list tells of; a problem in it is raised."""
    try:
        told = calls_line.validate_json(line)
    except ValidationError as error:
        raise StoreUnavailable("the list of calls is not one of a Recall server") from error
    if isinstance(told, CallSummary):
        return told
    raise within(error_of(told), ())
