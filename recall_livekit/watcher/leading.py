"""Only one watcher acts: the one that holds a lease of ours, on a chain that is no call's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import anyio

from ..call import Call, CallState
from ..call_ids import WATCHER_CALL_ID
from ..client import Recall
from ..errors import Fenced, RecallError, StoreError

__all__ = ["Leader", "NotActing"]

logger = logging.getLogger("recall_livekit.watcher")

FLUSH_WAIT = 0.5
"""Seconds: a watcher records nothing, so it has nothing to flush when it ends."""
AGAIN_AFTER = 1.0
"""Seconds, if the lease was lost for good, because its chain was erased."""


class NotActing(RecallError):
    """This watcher does not act, not any more: another one does, or nobody can know."""


class Leader:
    """Competes for the lease of the watchers for as long as it runs."""

    def __init__(self, recall: Recall, ttl: float, changed: Callable[[bool], None]) -> None:
        """Call `changed` whenever this watcher begins to act, or stops."""
        self._recall = recall
        self._settings = replace(recall.settings, lease_ttl=ttl, flush_wait=FLUSH_WAIT)
        self._told = changed
        self._call: Call | None = None
        self._acts = False

    @property
    def acts(self) -> bool:
        """Whether this watcher had the lease when it last looked; `confirm` before any act."""
        return self._acts

    async def run(self) -> None:
        """Take the lease whenever it is free, and give it back when this is cancelled."""
        while True:
            call = self._recall.resume(WATCHER_CALL_ID, settings=self._settings)
            try:
                await self._take_part(call)
            finally:
                self._call = None
                self._become(False)
                with anyio.CancelScope(shield=True):
                    await call.aclose("handover")
            await anyio.sleep(AGAIN_AFTER)

    async def confirm(self) -> None:
        """Return if the records say that this watcher has the lease still; it keeps it for a while.

        Raises:
            NotActing: It has not, or the records do not answer.
        """
        call = self._call
        if call is None or not self._acts or not await call.settled():
            raise NotActing("this watcher stands by")
        try:
            await self._recall._transport.renew(WATCHER_CALL_ID, call.writer, call.epoch)
        except (Fenced, StoreError) as error:
            raise NotActing(f"this watcher may not act: {error}") from error

    async def _take_part(self, call: Call) -> None:
        """Compete until the lease is lost for good: nothing tells that but `lost` itself."""
        closed = anyio.Event()

        def changed(state: CallState) -> None:
            self._become(state is CallState.HOLDING)
            if state is CallState.CLOSED:
                closed.set()

        call.subscribe(changed)
        self._call = call
        call.start()
        while not closed.is_set() and call.lost not in ("erased", "over"):
            with anyio.move_on_after(AGAIN_AFTER):
                await closed.wait()

    def _become(self, acts: bool) -> None:
        if acts is self._acts:
            return
        self._acts = acts
        logger.info("this watcher acts from here on" if acts else "this watcher acts no more")
        self._told(acts)
