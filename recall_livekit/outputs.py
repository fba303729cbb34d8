"""A worker's outputs on one call: long texts beside the chain, fetched again by their ref."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import anyio
from pydantic_core import to_json

from .checks import storable_name
from .engine.outputs import OUTPUT_BYTES, checked_ref
from .engine.together import first_of
from .errors import (
    Erased,
    InvalidRecord,
    OutboxFull,
    OutputMissing,
    RecallError,
    StoreError,
    StoreUnavailable,
)
from .keeper import LeaseKeeper
from .models import Action, Output
from .redaction import Redactor
from .seams import Clock
from .settings import Settings
from .transport import Transport

__all__ = ["PREVIEW_CHARS", "Outputs"]

logger = logging.getLogger("recall_livekit")

PREVIEW_CHARS = 200
"""How much of an output is told with its ref."""
WAITING = 16
"""How many texts of one call may wait to be kept; more are refused."""
PARTED = 256
"""What goes with the end of a text that is too long: redaction may not know half a number."""
JSON_BYTES = 3 * OUTPUT_BYTES
"""The most that a text may take on the wire, where control characters take six bytes each."""

_T = TypeVar("_T")


class Outputs:
    """Keeps texts under the writer's names, one after the other, and fetches them.

    `record` queues the record that names a text; it is called once the text is durable, so that
    no ref of ours leads nowhere.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: Settings,
        call_id: str,
        keeper: LeaseKeeper,
        redactor: Redactor,
        record: Callable[[Output], object],
    ) -> None:
        """Know of none."""
        self._transport = transport
        self._clock = clock
        self._settings = settings
        self._call_id = call_id
        self._keeper = keeper
        self._redactor = redactor
        self._record = record
        self._one = anyio.Lock()
        self._waiting = 0
        self._ended = anyio.Event()
        self._counter = 0
        self._mine: dict[str, Output] = {}
        self.unkept = 0
        """How many texts could not be kept; whoever wanted it was told each time."""

    async def keep(self, name: str, text: str) -> Output:
        """Keep the text, record where it is, and return that record. See `Call.keep_output`."""
        try:
            with anyio.fail_after(self._settings.output_wait):
                return await self._keep(name, text)
        except TimeoutError:
            why = self._keeper.error or "the records do not answer"
            error = StoreUnavailable(
                f"an output was not kept within {self._settings.output_wait:g} s: {why}"
            )
            self._count(error)
            raise error from None
        except RecallError as error:
            if isinstance(error, Erased):
                self._keeper.check_now()  # it may not know yet
            self._count(error)
            raise

    async def fetch(self, ref: str) -> str:
        """Return the text under this ref. See `Call.fetch_output`."""
        try:
            with anyio.fail_after(self._settings.request_wait):
                return await self._transport.get_output(self._call_id, checked_ref(ref))
        except TimeoutError:
            raise StoreUnavailable(
                f"the output {ref} was not read within {self._settings.request_wait:g} s"
            ) from None
        except OutputMissing as error:
            self._say_missing(ref, error)
            raise

    async def idle(self, seconds: float = math.inf) -> None:
        """Return when nothing is being kept any more, or after `seconds`."""
        with anyio.move_on_after(seconds):
            while self._waiting:
                await self._ended.wait()

    # --- keeping ------------------------------------------------------------------------------

    async def _keep(self, name: str, text: str) -> Output:
        if not isinstance(text, str):
            raise InvalidRecord(f"an output is a str, not {type(text).__name__}")
        if self._waiting >= WAITING:
            raise OutboxFull(f"{WAITING} outputs wait to be kept, and this worker keeps no more")
        self._waiting += 1
        try:
            kept = await self._storable(text)
            async with self._one:  # one create in flight, so that the counter has no gap
                ref = await self._put(kept)
        finally:
            self._waiting -= 1
            self._ended.set()
            self._ended = anyio.Event()
        output = Output(
            at=self._clock.now(),
            ref=ref,
            name=storable_name(name) or "output",
            chars=len(kept),
            preview=kept[:PREVIEW_CHARS],
        )
        self._record(output)
        self._mine[ref] = output
        return output

    async def _put(self, text: str) -> str:
        """Return the ref once the text is durable; tries for as long as it takes."""
        pause = self._settings.retry_first
        while True:
            try:
                ref = await self._transport.put_output(
                    self._call_id, self._keeper.writer, self._counter, text
                )
            except StoreError as error:
                logger.debug("an output is not kept yet: %s", error)
                ref = None
            if ref is not None:
                self._counter = int(ref.partition("/")[2]) + 1
                return ref
            sleep = partial(self._clock.sleep, self._clock.jitter(pause))
            await first_of(sleep, self._keeper.wait_reached)
            pause = min(2 * pause, self._settings.retry_last)

    async def _storable(self, text: str) -> str:
        """Return what may be kept of the text: redacted, and no longer than an output is."""
        cut = len(text) > OUTPUT_BYTES
        kept = await self._redactor.text(_clean(text[:OUTPUT_BYTES] if cut else text))
        fitting = _fitting(kept[:-PARTED] if cut else kept)
        if not cut and fitting == kept:
            return kept
        return f"{_fitting(fitting, 100)} [cut here: {len(text)} characters]"

    def _count(self, error: RecallError) -> None:
        if not self.unkept:
            logger.warning("an output is not kept; others that follow are counted: %s", error)
        self.unkept += 1

    # --- what is not there ----------------------------------------------------------------------

    def _say_missing(self, ref: str, error: OutputMissing) -> None:
        """Record that what the records tell of is not there: the next worker need not look."""
        known = self._recorded(ref)
        if known is None or known.missing:
            return
        missing = known.model_copy(update={"at": self._clock.now(), "missing": True})
        self._mine[ref] = missing
        logger.warning("an output that the records tell of is not there: %s", error)
        try:
            self._record(missing)
        except RecallError as refused:
            logger.debug("that it is missing is not recorded: %s", refused)

    def _recorded(self, ref: str) -> Output | None:
        """Return what the records tell of this ref."""
        if ref in self._mine or self._keeper.briefing is None:
            return self._mine.get(ref)
        briefing = self._keeper.briefing
        for output in briefing.outputs:
            if output.ref == ref:
                return output
        of_tools = (action for action in briefing.finished if action.result_ref == ref)
        return next(map(_of_tool, of_tools), None)


def _of_tool(action: Action) -> Output:
    return Output(at=action.at, ref=action.result_ref or "", name=action.tool, chars=0)


def _clean(text: str) -> str:
    """Return the text in valid Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fitting(text: str, spare: int = 0) -> str:
    """Return as much of the text as an output holds, less `spare` bytes."""
    kept = text.encode()[: OUTPUT_BYTES - spare].decode("utf-8", "ignore")
    while len(to_json(kept)) > JSON_BYTES:
        kept = kept[: len(kept) // 2]
    return kept
