"""`HttpTransport`: the requests of a worker, answered by a Recall server."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from ..engine.liveness import Liveness
from ..engine.news import CallEvent
from ..engine.requests import Ack, Acquire, Grant
from ..engine.runs import SameCall
from ..errors import (
    Erased,
    Fenced,
    Held,
    InvalidInput,
    InvalidRecord,
    InvalidSettings,
    UnknownRun,
)
from ..models import Outcome, Partial, Record
from ..seams import Clock
from ..settings import Settings
from ..wire import (
    UNIT_RECORDS,
    OutputAnswer,
    OutputRequest,
    PartialsAnswer,
    PartialsRequest,
    Provisional,
    RecordsAnswer,
    RecordsUnit,
    ReleaseRequest,
    RenewRequest,
    RunAnswer,
)
from .address import check_address, is_loopback
from .events import listen
from .flusher import Flusher
from .http import AsyncClient, Http
from .keys import ApiKey, key_source
from .onlooker import HttpOnlooker, path_of
from .streams import Streams
from .verdicts import Verdicts

__all__ = ["HttpTransport"]

logger = logging.getLogger("recall_livekit")


class HttpTransport(HttpOnlooker):
    """Satisfies `transport.Transport`. Opens nothing before the first request, and may be made
    where no event loop runs."""

    def __init__(
        self,
        url: str,
        *,
        api_key: ApiKey | None = None,
        settings: Settings,
        clock: Clock,
        same_call: SameCall | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        """Talk to the server at `url`, over `client` if one is given: it is not closed here.

        Raises:
            InvalidSettings: The address, the key or a setting cannot be used with a server.
        """
        address, keys = check_address(url), key_source(api_key, clock)
        if settings.batch_records > UNIT_RECORDS:
            raise InvalidSettings(f"a server takes batch_records up to {UNIT_RECORDS}")
        if keys.shows_key and address.startswith("http:") and not is_loopback(address):
            logger.warning("%s is not encrypted: the key and the records can be read", address)
        super().__init__(
            Http(address, keys, settings, client), settings, Verdicts(same_call, clock)
        )
        self._clock = clock
        self._streams = Streams(self._http, clock, settings)
        self._flusher = Flusher(self._post)

    async def aclose(self) -> None:
        """End the streams and what is in flight. Close the live calls first: nothing is sent."""
        await self._flusher.aclose()
        await self._streams.aclose()
        await self._http.aclose()

    def events(self) -> AsyncGenerator[CallEvent, None]:
        """Return what happens to the calls of the key's namespace, as it happens: on one stream,
        opened anew for as long as it takes."""
        return listen(self._http, self._clock, self._settings)

    async def finish_erasure(self, call: str) -> None:
        """The server does it."""

    # --- leases -------------------------------------------------------------------------------

    async def wait_free(self, call: str, *, doubt: Callable[[], None] | None = None) -> Liveness:
        """Return once the call has no live holder. `doubt` is called at once when its stream
        breaks: it has `disconnect_grace` to come back.

        Raises:
            StoreError.
        """
        return await self._streams.wait_free(call, doubt=doubt)

    async def acquire(self, call: str, request: Acquire) -> Grant:
        """Take the lease; its sign of life is a stream, which `stay` opens.

        Raises:
            Held, Erased, Fenced, StoreError: As `Engine.acquire`.
        """
        body = self._request(call, request, stream=True)
        return await self._http.ask(
            Grant, "POST", f"{path_of(call)}/lease", body=body, raises=(Held, Erased, Fenced)
        )

    async def open_run(self, call: str, request: Acquire) -> int:
        """Return the run that this origin's provisional records belong to.

        Raises:
            Erased, Held, UnknownRun, StoreError.
        """
        body = self._request(call, request, stream=False)
        raises = (Erased, Held, UnknownRun)
        answer = await self._http.ask(
            RunAnswer, "POST", f"{path_of(call)}/runs", body=body, raises=raises
        )
        return answer.run

    async def renew(self, call: str, writer: str, epoch: int) -> None:
        """Show that the holder lives.

        Raises:
            Fenced, StoreError.
        """
        body = RenewRequest(writer=writer).model_dump_json().encode()
        await self._http.tell("PUT", f"{path_of(call)}/lease/{epoch}", body=body, raises=(Fenced,))

    async def release(self, call: str, writer: str, epoch: int, outcome: Outcome) -> None:
        """Give the lease back.

        Raises:
            Fenced, StoreError.
        """
        body = ReleaseRequest(writer=writer, outcome=outcome).model_dump_json().encode()
        path = f"{path_of(call)}/lease/{epoch}/release"
        await self._http.tell("POST", path, body=body, raises=(Fenced,))

    async def hold_lock(self, name: str) -> str | None:
        """Return the name: no lock is held, but the holder's stream goes by it on this worker."""
        return name

    async def let_go_lock(self, name: str | None) -> None:
        """End the stream that goes by this name."""
        if name is not None:
            await self._streams.end(name)

    async def stay(self, call: str, writer: str, epoch: int, lock: str | None) -> None:
        """Keep the holder's stream open; return when the lease was taken, or let go."""
        await self._streams.stay(lock or f"{writer}-{epoch}", call, writer, epoch)

    # --- writing ------------------------------------------------------------------------------

    async def append(
        self, call: str, writer: str, first: int, records: Sequence[Record], epoch: int
    ) -> Ack:
        """Append records under the lease; when it returns they are durable, once (rule 4).

        Raises:
            Fenced, Gap, InvalidRecord, StoreError.
        """
        unit = RecordsUnit.model_construct(
            call_id=call, writer=writer, first=first, records=tuple(records), epoch=epoch
        )
        return await self._flusher.send(unit)

    async def append_provisional(
        self,
        call: str,
        writer: str,
        first: int,
        records: Sequence[Record],
        run: int,
        epoch_read: int,
    ) -> Ack:
        """Append records of a writer that does not hold the lease (rule 6).

        Raises:
            Erased, UnknownRun, Gap, InvalidRecord, StoreError.
        """
        unit = RecordsUnit.model_construct(
            call_id=call,
            writer=writer,
            first=first,
            records=tuple(records),
            provisional=Provisional(run=run, epoch_read=epoch_read),
        )
        return await self._flusher.send(unit)

    async def put_partials(
        self, call: str, writer: str, run: int, partials: Sequence[Partial]
    ) -> bool:
        """Overwrite the writer's partials; False if it has no entry yet, or was erased.

        Raises:
            StoreError.
        """
        request = PartialsRequest.model_construct(writer=writer, run=run, partials=tuple(partials))
        body = request.model_dump_json().encode()
        answer = await self._http.ask(PartialsAnswer, "PUT", f"{path_of(call)}/partials", body=body)
        return answer.written

    async def put_output(self, call: str, writer: str, counter: int, text: str) -> str | None:
        """Keep a text beside the chain and return its ref; None before the writer's first entry.

        Raises:
            Erased, InvalidRecord, StoreError: As `Engine.put_output`.
        """
        request = OutputRequest.model_construct(writer=writer, counter=counter, text=text)
        answer = await self._http.ask(
            OutputAnswer,
            "PUT",
            f"{path_of(call)}/outputs",
            body=request.model_dump_json().encode(),
            raises=(Erased, InvalidRecord),
        )
        return answer.ref

    # --- inside -------------------------------------------------------------------------------

    async def _post(self, body: bytes) -> RecordsAnswer:
        return await self._http.ask(
            RecordsAnswer, "POST", "/v1/records", body=body, raises=(InvalidInput,)
        )

    def _request(self, call: str, request: Acquire, *, stream: bool) -> bytes:
        """Return the body of a lease's request. A lock is this worker's own affair."""
        asked = request.model_copy(
            update={
                "lock": None,
                "stream": stream,
                "tokens": self._settings.briefing_tokens,
                "origin": self._verdicts.told(call, request.origin),
            }
        )
        return asked.model_dump_json().encode()
