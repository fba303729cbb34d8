"""The end of a call on this worker: it closes with its session, with its job, or leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from livekit.agents import AgentSession, CloseEvent

from ..call import Call
from .background import Background
from .closing import Closing
from .place import Place

__all__ = ["Ending", "Part"]


class Part(Protocol):
    """What ends with the call."""

    async def aclose(self) -> None:
        """Be gone."""


class Ending:
    """Ends one live session once, whichever way it comes to that."""

    def __init__(
        self,
        call: Call,
        place: Place,
        background: Background,
        parts: Callable[[], Iterable[Part | None]],
        *,
        shutdown_when_left: bool,
    ) -> None:
        """`parts` end with the call, in this order, after it."""
        self.over = False
        self._call = call
        self._place = place
        self._background = background
        self._parts = parts
        self._shutdown_when_left = shutdown_when_left
        self._session: AgentSession[Any] | None = None
        self._closing: Closing | None = None

    def watch(self, session: AgentSession[Any]) -> None:
        """End with this session."""
        self._session = session
        self._closing = Closing(session, self._place.job)
        session.on("close", self._session_closed)

    def discard(self) -> None:
        """End without a word: the session has another live session already."""
        self.over = True
        self._background.spawn(self._close())

    async def job_ends(self) -> None:
        """LiveKit's shutdown callback: also runs where the session never started."""
        if not self.over:
            self.over = True
            await self._close()
        else:
            await self._background.ended()

    async def withdraw(self) -> None:
        """A standby has nothing to wait for any more: leave the room and end the job, once."""
        if self.over:
            await self._background.ended()
        else:
            await self.leave()

    async def leave(self) -> None:
        """This worker is not wanted on the call any more: leave the room and end the job."""
        self.over = True
        await self.leave_room()
        await self._close()
        shut_down = self._closing.shutdown_job if self._closing else None
        if shut_down is None and self._session is None and self._place.job is not None:
            shut_down = self._place.job.shutdown
        if shut_down is not None:
            shut_down("this worker is not wanted on the call")
        elif self._session is not None:
            await self._session.aclose()

    async def leave_room(self) -> None:
        """Disconnect; the caller's side is clean at once."""
        if self._place.job is not None:
            await self._place.job.room.disconnect()

    def _session_closed(self, event: CloseEvent) -> None:
        assert self._closing is not None
        outcome = self._closing.outcome(event)
        self.over = True
        self._background.spawn(self._close(left=outcome == "left"))
        self._call.outcome = self._call.outcome or outcome

    async def _close(self, *, left: bool = False) -> None:
        await self._call.aclose(self._call.outcome or "handover")
        for part in self._parts():
            if part is not None:
                await part.aclose()
        shut_down = self._closing.shutdown_job if self._closing else None
        if left and self._shutdown_when_left and shut_down is not None:
            shut_down("the caller left")
