"""One outbox for all the calls of a worker: one request in flight, the next takes all that waits.

One POST for each turn of each call collapses long before one POST for what many calls have to say
since the last one was answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..engine.requests import Ack
from ..errors import (
    Closed,
    Erased,
    Fenced,
    Gap,
    InvalidInput,
    InvalidRecord,
    RecallError,
    StoreUnavailable,
    UnknownRun,
)
from ..problems import error_of
from ..wire import BODY_BYTES, UNITS, RecordsAnswer, RecordsUnit
from .http import Unreachable
from .refusals import within

__all__ = ["FLIGHT_BYTES", "Flusher"]

logger = logging.getLogger("recall_livekit")

FLIGHT_BYTES = 768 * 1024
"""The most that one request carries, but for a unit that is larger alone: proxies that nobody
told otherwise refuse more than a megabyte."""
LANES = 4096
"""How many writers on lanes of their own are remembered."""

RAISES = (Fenced, Gap, InvalidInput, Erased, UnknownRun)
"""What may be answered for a unit, beside that it could not be done."""

Post = Callable[[bytes], Awaitable[RecordsAnswer]]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    writer: str
    data: bytes
    answer: asyncio.Future[Ack]


class Flusher:
    """Sends units of any number of writers, each of which has at most one in flight.

    A writer whose unit went wrong is sent on a lane of its own until one succeeds, so that it
    holds nobody up. Flights are tasks; they end when nothing waits, and with `aclose`.
    """

    def __init__(self, post: Post) -> None:
        """`post` sends the body of a `RecordsRequest`."""
        self._post = post
        self._queue: deque[_Waiting] = deque()
        self._flying: set[str] = set()
        self._apart: dict[str, None] = {}
        self._flights: dict[asyncio.Task[None], bool] = {}
        self._closed = False

    async def send(self, unit: RecordsUnit) -> Ack:
        """Return once the unit is durable. Cancelled, it may be sent all the same.

        Raises:
            InvalidRecord: It is larger than a request may be.
            RecallError: What the server answered for this very unit.
            Closed: After `aclose`.
        """
        if self._closed:
            raise Closed("the handle on the Recall server was closed")
        data = unit.model_dump_json().encode()
        if len(data) + len(_body([])) > BODY_BYTES:
            raise InvalidRecord(f"{len(data)} bytes in one unit: lower batch_bytes")
        waiting = _Waiting(unit.writer, data, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._depart()
        try:
            return await waiting.answer
        finally:
            with suppress(ValueError):  # it has left
                self._queue.remove(waiting)

    async def aclose(self) -> None:
        """End the flights; whoever still waits gets `Closed`."""
        self._closed = True
        flights = list(self._flights)
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        _fail(self._queue, Closed("the handle on the Recall server was closed"))
        self._queue.clear()

    # --- inside -------------------------------------------------------------------------------

    def _depart(self) -> None:
        """Begin the flights that may begin: one for all, and one for each lane."""
        for waiting in [w for w in self._queue if w.writer in self._apart]:
            if waiting.writer not in self._flying:
                self._fly([waiting], shared=False)
        if not any(self._flights.values()) and (batch := self._boarding()):
            self._fly(batch, shared=True)

    def _boarding(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        writers = self._flying | self._apart.keys()
        size = 0
        for waiting in self._queue:
            if waiting.writer in writers:
                continue
            size += len(waiting.data)
            if batch and (len(batch) >= UNITS or size > FLIGHT_BYTES):
                break
            batch.append(waiting)
            writers.add(waiting.writer)
        return batch

    def _fly(self, batch: Sequence[_Waiting], *, shared: bool) -> None:
        for waiting in batch:
            self._queue.remove(waiting)
            self._flying.add(waiting.writer)
        flight = asyncio.create_task(self._flight(batch), name="recall flight of records")
        self._flights[flight] = shared
        flight.add_done_callback(lambda flight: self._landed(flight, batch))

    async def _flight(self, batch: Sequence[_Waiting]) -> None:
        try:
            answer = await self._post(_body(batch))
        except RecallError as error:
            self._failed(batch, error)
            return
        if len(answer.answers) != len(batch):
            self._failed(batch, StoreUnavailable("the server did not answer for every unit"))
            return
        for waiting, one in zip(batch, answer.answers, strict=True):
            if one.ack is not None:
                self._apart.pop(waiting.writer, None)
                _settle(waiting, one.ack)
            elif one.problem is not None:
                self._refuse(waiting, within(error_of(one.problem), RAISES))
            else:
                self._refuse(waiting, StoreUnavailable("the server did not say how it went"))

    def _landed(self, flight: asyncio.Task[None], batch: Sequence[_Waiting]) -> None:
        """The flight is over, however it went: nobody waits for it for ever."""
        del self._flights[flight]
        self._flying.difference_update(waiting.writer for waiting in batch)
        if flight.cancelled():
            _fail(batch, Closed("the handle on the Recall server was closed"))
        elif (error := flight.exception()) is not None:
            logger.error("sending records failed", exc_info=error)
            _fail(batch, StoreUnavailable(f"sending failed: {type(error).__name__}"))
        if not self._closed:
            self._depart()

    def _failed(self, batch: Sequence[_Waiting], error: RecallError) -> None:
        """The whole request went wrong. Unless nobody was reached, one unit may be the reason."""
        for waiting in batch:
            if isinstance(error, InvalidInput) and len(batch) > 1:
                self._refuse(waiting, StoreUnavailable(f"refused with others: {error}"))
            else:
                self._refuse(waiting, error)

    def _refuse(self, waiting: _Waiting, error: RecallError) -> None:
        if isinstance(error, StoreUnavailable) and not isinstance(error, Unreachable):
            self._set_apart(waiting)
        _settle(waiting, error)

    def _set_apart(self, waiting: _Waiting) -> None:
        self._apart[waiting.writer] = None
        if len(self._apart) > LANES:
            del self._apart[next(iter(self._apart))]


def _fail(batch: Iterable[_Waiting], error: RecallError) -> None:
    for waiting in batch:
        _settle(waiting, error)


def _body(batch: Sequence[_Waiting]) -> bytes:
    return b'{"units":[' + b",".join(waiting.data for waiting in batch) + b"]}"


def _settle(waiting: _Waiting, answer: Ack | RecallError) -> None:
    if waiting.answer.done():
        return  # cancelled
    if isinstance(answer, Ack):
        waiting.answer.set_result(answer)
    else:
        waiting.answer.set_exception(answer)
