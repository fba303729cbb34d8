"""A standby's wait: until the call is this worker's, or there is nothing to wait for.

No session is started meanwhile: a started one answers chat and shows as a second agent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livekit.agents import Agent, AgentSession

from ...call import Call, CallState
from ...call_ids import standby_call_id
from ...client import Recall
from ...engine.requests import Reading
from ...models import Briefing
from ..place import Place
from ..sound.warm_up import warm_up
from .whereabouts import Inside, Outside, Whereabouts

if TYPE_CHECKING:
    from ..session import LiveSession

__all__ = ["Post", "Standby", "stand_by"]

logger = logging.getLogger("recall_livekit")

LATE = "it has waited as long as its token lets it join: a watcher brings another one"


class Post:
    """The place of *the* standby of a call: the lease of a chain of its own, so that a call has
    one of them, and so that a watcher sees whether it has."""

    def __init__(self, recall: Recall, call: Call, place: Place) -> None:
        """Take nothing yet."""
        self._call = recall.resume(
            standby_call_id(call.call_id),
            room_sid=place.room_sid,
            agent_name=place.agent_name,
            if_held="leave",
            if_lease_lost="leave",
        )

    def take(self, refused: Callable[[str], None]) -> None:
        """Take it in the background; `refused` is told if another has it, now or later. Where
        the records cannot be reached nobody is refused."""
        self._refused = refused
        self._call.subscribe(self._changed)
        self._call.start()

    async def aclose(self) -> None:
        """Let the next one have it."""
        await self._call.aclose("handover")

    def _changed(self, state: CallState) -> None:
        if state in (CallState.READ_ONLY, CallState.CLOSED) and (
            self._call.refusal is not None or self._call.lost is not None
        ):
            self._refused("the call has another standby")


class Standby:
    """One worker's wait for one call, at one place."""

    def __init__(
        self, call: Call, where: Whereabouts, post: Post | None, *, may_begin: bool = False
    ) -> None:
        """`post` is None where the call may have a standby beside this one. `may_begin`: if the
        call ends, a new one begins here."""
        self.where = where
        self._call = call
        self._post = post
        self._may_begin = may_begin
        self._done: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        self._why: str | None = None
        self.freed_at = 0.0
        """When (Unix seconds) this worker learned that the call is free."""

    async def wait(self) -> bool:
        """Return True once the call is this worker's, False if it is not to be.

        What waiting took is let go of in the background: `aclose` waits for it.
        """
        self._call.subscribe(self._changed)
        self._call.take_only_if(self._is_wanted)
        acts = False
        try:
            acts = await self._wait()
        finally:
            self._done = asyncio.create_task(self._let_go(acts), name="recall standby ends")
        if acts:
            self._call.take_only_if(None)
        return acts

    async def aclose(self) -> None:
        """Return once nothing is held any more that waiting took."""
        if self._done is not None:
            await asyncio.wait([self._done])
        if self.where.ear is not None:
            await self.where.ear.aclose()

    # --- inside -------------------------------------------------------------------------------

    async def _wait(self) -> bool:
        if self._post is not None:
            self._post.take(self._ended)
        try:
            async with asyncio.timeout(self.where.seconds):
                await self._begin()
                while not self._is_decided:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self._ended(LATE)
        if self._call.state is CallState.HOLDING:
            logger.info("this standby has the call: it acts")
            return True
        logger.info("this standby ends: %s", self._why or self._call.lost or "the call is over")
        return False

    @property
    def _is_decided(self) -> bool:
        return self._why is not None or self._call.state in (CallState.HOLDING, CallState.CLOSED)

    async def _begin(self) -> None:
        try:
            await self.where.begin(self._ended)
        except Exception as error:  # whatever LiveKit says: this job is of no use
            self._ended(f"it cannot wait there: {error}")
        if self._call.known:
            self._prefer(self._call.briefing)
        self._ready.set()

    def _prefer(self, briefing: Briefing) -> None:
        """Of several people hear the one with whom the call was begun."""
        if self.where.ear is not None and briefing.caller is not None:
            self.where.ear.prefer(briefing.caller)

    async def _is_wanted(self, reading: Reading) -> bool:
        """Whether to take the call, now that nobody has it: it goes on, and a caller waits."""
        self.freed_at = time.time()
        await self._ready.wait()
        self._prefer(reading.briefing)
        if self._why is None and reading.run == 0 and not self._may_begin:
            self._ended("the call has ended")
        try:
            if self._why is None and not await self.where.has_caller():
                self._ended("no caller is in its room, or it was sent away")
        except Exception as error:
            logger.exception("the room cannot be looked at")
            self._ended(f"its room cannot be looked at: {error}")
        if self._why is None:
            self.where.approach()
        return self._why is None

    async def _let_go(self, acts: bool) -> None:
        parts = [self.where.act() if acts else self.where.end()]
        if self._post is not None:
            parts.append(self._post.aclose())
        for failed in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(failed, Exception):
                logger.warning("a standby could not let go of everything: %r", failed)

    def _changed(self, state: CallState) -> None:
        self._news.set()

    def _ended(self, why: str) -> None:
        self._why = self._why or why
        self._news.set()


async def stand_by(live: LiveSession, session: AgentSession[Any], agent: Agent | None) -> bool:
    """See `RecallAgent.stand_by`."""
    job, orders = live.place.job, live.place.orders
    if job is None or live.session is not None:
        return True
    if orders.standby is None and not await _is_second(live):
        return live.call.refusal is None
    hears = live.call.settings.standby_hears
    where = Outside(job) if orders.standby == "following" else Inside(job, hears)
    post = None if orders.handover else Post(live.recall, live.call, live.place)
    may_begin = orders.standby is None and live.call.waits_for_another_room
    live.standby = Standby(live.call, where, post, may_begin=may_begin)
    warm_up(session, agent)
    if await live.standby.wait():
        return True
    await live.withdraw()
    return False


async def _is_second(live: LiveSession) -> bool:
    """Whether a live worker has the call, as far as it can be read within `seed_wait`; what that
    took is not waited for again before the first reply."""
    began = time.monotonic()
    await live.call.ready(live.call.settings.seed_wait)
    live.waited = time.monotonic() - began
    return live.call.state is CallState.STANDBY
