"""`Recall`: the handle that an application opens. The address decides where the records live."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from .breaking import break_lease
from .call import Call
from .call_ids import check_call_id
from .engine.engine import Engine
from .engine.entries import Entry
from .engine.listing import CallSummary
from .engine.runs import SameCall
from .engine.tokens import Estimator, TiktokenCounter, TokenCounter
from .models import Briefing, Turn
from .redaction import Redact
from .remote.address import is_remote
from .seams import Clock, SystemClock
from .settings import Settings
from .spool.place import server_place, spool_directory
from .spool.spool import Spool
from .standing import IfHeld, IfLeaseLost
from .stores.base import Store
from .stores.opening import open_store
from .transport import Transport

if TYPE_CHECKING:
    from .remote.http import AsyncClient
    from .remote.keys import ApiKey

__all__ = ["Recall"]

logger = logging.getLogger("recall_livekit")

DEFAULT_URL = "sqlite:///./recall-data"


class Recall:
    """The records of many calls, in one place. Share one between the calls of a process."""

    def __init__(
        self,
        store: Store,
        *,
        settings: Settings | None = None,
        same_call: SameCall | None = None,
        tokens: Literal["estimate", "tiktoken"] = "estimate",
        clock: Clock | None = None,
    ) -> None:
        """Use a store of your own; most applications call `open`.

        Raises:
            InvalidSettings: tiktoken was asked for and its table is not there.
        """
        settings, clock = settings or Settings(), clock or SystemClock()
        counter: TokenCounter = TiktokenCounter() if tokens == "tiktoken" else Estimator()
        engine = Engine(store, clock, settings, counter=counter, same_call=same_call)
        self._use(engine, settings, clock)

    def _use(self, transport: Transport, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self._clock = clock
        self._transport = transport
        self._spool: Spool | None = None

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        api_key: ApiKey | None = None,
        settings: Settings | None = None,
        same_call: SameCall | None = None,
        tokens: Literal["estimate", "tiktoken"] = "estimate",
        http_client: AsyncClient | None = None,
        spool: str | os.PathLike[str] | Literal[False] | None = None,
    ) -> Recall:
        """Open the records at `url`, else at `RECALL_URL`, else in ``./recall-data``.

        ``sqlite:///./recall-data`` is a directory on this machine, relative to the working
        directory; any number of worker processes share it. ``https://recall.internal`` is a
        Recall server, which counts tokens as it was told to. Nothing is read or written yet.

        Args:
            url: Where the records are.
            api_key: For a server: the key, or a function that returns it, called again when the
                server refuses what it returned. Default: `RECALL_API_KEY`, else what is in the
                file `RECALL_API_KEY_FILE`, which is read again likewise.
            settings: How this worker behaves.
            same_call: Says whether a run of another room goes on here. It is called in this
                process, wherever the records are.
            tokens: How tokens are counted in this process.
            spool: For a server: the directory on this machine's disk in which records wait while it
                cannot be reached. Default: `RECALL_SPOOL`, else ``./recall-spool``. False: they
                wait in memory alone.
            http_client: For a server: a client of your own, for instance with a proxy (those
                of the environment are not used) or a certificate. It is not closed here.

        Raises:
            InvalidSettings: The address, or the key, cannot be used.
        """
        url = url or os.environ.get("RECALL_URL") or DEFAULT_URL
        if not is_remote(url):
            return cls(open_store(url), settings=settings, same_call=same_call, tokens=tokens)
        from .remote.transport import HttpTransport  # loads an HTTP client: only where one is used

        recall = cls.__new__(cls)
        settings, clock = settings or Settings(), SystemClock()
        transport = HttpTransport(
            url,
            api_key=api_key,
            settings=settings,
            clock=clock,
            same_call=same_call,
            client=http_client,
        )
        recall._use(transport, settings, clock)
        if spool is not False:
            recall._spool = Spool.open(
                spool_directory(spool),
                address=server_place(url, api_key),
                transport=transport,
                clock=clock,
                settings=settings,
            )
        return recall

    def resume(
        self,
        call_id: str,
        *,
        room_sid: str | None = None,
        caller: str | None = None,
        agent_name: str | None = None,
        if_held: IfHeld = "standby",
        if_lease_lost: IfLeaseLost = "standby",
        redact: Redact | None = None,
        settings: Settings | None = None,
    ) -> Call:
        """Return the live call of this id on this worker; it goes on where the last one stopped.

        `room_sid` and `caller` tell whether it is the same call (see `Origin`). While another
        live worker has it: wait as a standby, take it ("steal"), or raise `Held` ("leave").
        `settings` are this call's, if not the handle's.

        Raises:
            InvalidCallId: Not 1 to 256 bytes.
        """
        return Call(
            self._transport,
            self._clock,
            settings or self.settings,
            call_id,
            room_sid=room_sid,
            caller=caller,
            agent_name=agent_name,
            if_held=if_held,
            if_lease_lost=if_lease_lost,
            redact=redact,
            spool=self._spool,
        )

    async def read(self, call_id: str) -> Briefing:
        """Return the briefing of the call's current run, without taking part in it.

        Raises:
            InvalidCallId, StoreError.
        """
        return (await self._transport.read(call_id)).briefing

    async def turns(self, call_id: str) -> Sequence[Turn]:
        """Return every turn of the current run, however long.

        Raises:
            InvalidCallId, StoreError.
        """
        return await self._transport.turns(call_id)

    async def fetch_output(self, call_id: str, ref: str) -> str:
        """Return the whole text that `Call.keep_output` kept under this ref, at most 1 MiB.

        Raises:
            OutputMissing: Nothing is kept under it, or no more.
            InvalidCallId, StoreError.
        """
        return await self._transport.get_output(check_call_id(call_id), ref)

    def calls(self) -> AsyncIterator[str]:
        """Yield the id of every call that has records; Recall's own chains are not told.

        Raises:
            StoreError.
        """
        return self._transport.calls()

    def summaries(self) -> AsyncIterator[CallSummary]:
        """Yield how every call stands, in no order. Costs a read of each.

        Raises:
            StoreError.
        """
        return self._transport.summaries()

    async def entries(self, call_id: str, start: int = 0, limit: int = 256) -> Sequence[Entry]:
        """Return at most `limit` entries of the call's chain from position `start` on.

        Raises:
            InvalidCallId, StoreError.
        """
        return await self._transport.entries(call_id, start, limit)

    async def break_lease(self, call_id: str, epoch: int) -> bool:
        """Take the call from a holder that was found frozen, so that it is free at once: for a
        watcher that asked the holder itself. Whoever waits takes it and goes on in the same run.

        Only the lease of this `epoch` is broken: False if another is in force by now, or none.
        To repeat it after an error is safe, for anybody.

        Raises:
            InvalidCallId.
            StoreError: It may be done or not; repeat it.
        """
        return await break_lease(self._transport, check_call_id(call_id), epoch)

    async def erase(self, call_id: str) -> None:
        """Erase all content of a call for ever, its standby's too; done when it returns.

        Raises:
            InvalidCallId, StoreError.
        """
        await self._transport.erase(call_id)

    async def aclose(self) -> None:
        """Close the store, or what is open to the server. Close the live calls first."""
        if self._spool is not None:
            await self._spool.aclose()
        await self._transport.aclose()

    async def __aenter__(self) -> Recall:
        """Return itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        await self.aclose()
