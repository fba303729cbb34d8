"""`Recall`: the handle that an application opens. The address decides where the records live."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Literal

from .call import Call
from .engine.engine import Engine
from .engine.runs import SameCall
from .engine.tokens import Estimator, TiktokenCounter, TokenCounter
from .keeper import IfHeld, IfLeaseLost
from .models import Briefing, Turn
from .redaction import Redact
from .seams import Clock, SystemClock
from .settings import Settings
from .stores.base import Store
from .stores.opening import open_store
from .transport import Transport

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
        self.settings = settings or Settings()
        self._clock = clock or SystemClock()
        counter: TokenCounter = TiktokenCounter() if tokens == "tiktoken" else Estimator()
        self._transport: Transport = Engine(
            store, self._clock, self.settings, counter=counter, same_call=same_call
        )

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        settings: Settings | None = None,
        same_call: SameCall | None = None,
        tokens: Literal["estimate", "tiktoken"] = "estimate",
    ) -> Recall:
        """Open the records at `url`, else at `RECALL_URL`, else in ``./recall-data``.

        ``sqlite:///./recall-data`` is a directory on this machine, relative to the working
        directory; any number of worker processes share it. Nothing is read or written yet.

        Raises:
            InvalidSettings: The address names no store of this version.
        """
        url = url or os.environ.get("RECALL_URL") or DEFAULT_URL
        return cls(open_store(url), settings=settings, same_call=same_call, tokens=tokens)

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
    ) -> Call:
        """Return the live call of this id on this worker; it goes on where the last one stopped.

        `room_sid` and `caller` tell whether it is the same call (see `Origin`). While another
        live worker has it: wait as a standby, take it ("steal"), or raise `Held` ("leave").

        Raises:
            InvalidCallId: Not 1 to 256 bytes.
        """
        return Call(
            self._transport,
            self._clock,
            self.settings,
            call_id,
            room_sid=room_sid,
            caller=caller,
            agent_name=agent_name,
            if_held=if_held,
            if_lease_lost=if_lease_lost,
            redact=redact,
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

    def calls(self) -> AsyncIterator[str]:
        """Yield the id of every call that has records."""
        return self._transport.calls()

    async def erase(self, call_id: str) -> None:
        """Erase all content of a call for ever; done when it returns.

        Raises:
            InvalidCallId, StoreError.
        """
        await self._transport.erase(call_id)

    async def aclose(self) -> None:
        """Close the store. Close the live calls first."""
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
