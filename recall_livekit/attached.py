"""`attach`: what `RecallAgent` does, for a session whose agents have other bases."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from livekit.agents import Agent, AgentSession

from .actions import Resolver
from .call import Call
from .client import Recall
from .livekit.bring_back import AgentFactory
from .livekit.going_on import go_on, go_on_after_handover
from .livekit.options import LiveOptions
from .livekit.session import LiveSession
from .livekit.sound.first_words import ResumeAudio, decoded
from .livekit.succession.standby import stand_by
from .livekit.words import RESUME_WORDS
from .models import Action, Briefing
from .redaction import Redact
from .standing import IfHeld, IfLeaseLost

__all__ = ["Attached", "attach"]

logger = logging.getLogger("recall_livekit")

_attached: weakref.WeakSet[AgentSession[Any]] = weakref.WeakSet()
"""The sessions that are attached, started or not."""

OnFresh = Callable[[], Awaitable[None]]
OnResume = Callable[[Briefing | None], Awaitable[None]]
OnHandover = Callable[[Briefing], Awaitable[None]]
OnLeaseLost = Callable[[str], Awaitable[None]]


def attach(
    session: AgentSession[Any],
    *,
    resume: str,
    recall: Recall | None = None,
    caller: str | None = None,
    if_held: IfHeld = "standby",
    if_lease_lost: IfLeaseLost = "standby",
    redact: Redact | None = None,
    userdata_type: type[object] | None = None,
    shutdown_when_left: bool = True,
    resume_audio: ResumeAudio | str | os.PathLike[str] | bytes | None = None,
    resume_words: str = RESUME_WORDS,
    resume_agents: Mapping[str, AgentFactory] | None = None,
    on_fresh: OnFresh | None = None,
    on_resume: OnResume | None = None,
    on_handover: OnHandover | None = None,
    on_lease_lost: OnLeaseLost | None = None,
) -> Attached:
    """Have a session's call survive its worker, whatever agents the session has.

    Call it before the room is connected and before the session is started: it begins to read the
    call's records at once, and takes the lease in the background. Whichever agent is active is
    given what was said, recorded, and silent while another worker has the call::

        session = AgentSession(...)
        attached = recall_livekit.attach(session, resume=ctx.room.name)
        if await attached.stand_by():
            await session.start(Support(), room=ctx.room)

    An agent's own `on_enter` runs as ever, on a call that goes on too, and there the agent has
    said its first words already: ask `await attached.fresh()` before you greet.

    A session may have been started before; then what was said until now is not recorded. What can
    be chosen is the same as for `RecallAgent` (but `model_tools`: give those to the agents), and
    so are the hooks, given as functions: without `on_fresh` nothing is said; without `on_resume`
    the active agent says one short sentence and goes on; without `on_handover` it says what is due.

    Raises:
        InvalidCallId, InvalidSettings: As `RecallAgent`.
        RuntimeError: The session is attached to a call already.
    """
    if LiveSession.of_session(session) is not None or session in _attached:
        raise RuntimeError("this session is attached to a call already: attach it once")
    options = LiveOptions(
        resume=resume,
        recall=recall,
        caller=caller,
        if_held=if_held,
        if_lease_lost=if_lease_lost,
        redact=redact,
        userdata_type=userdata_type,
        shutdown_when_left=shutdown_when_left,
        resume_agents=resume_agents or {},
    )
    hooks = _Hooks(session, decoded(resume_audio), resume_words)
    hooks.given_fresh, hooks.given_resume = on_fresh, on_resume
    hooks.given_handover, hooks.given_lost = on_handover, on_lease_lost
    live = options.live()
    if live.session is not None:
        raise RuntimeError("this job has a session of this call already: it is attached as that")
    attached = Attached(session, live, hooks)
    _attached.add(session)
    return attached


class Attached:
    """A session that is attached to its call. Made by `attach`."""

    def __init__(self, session: AgentSession[Any], live: LiveSession, hooks: _Hooks) -> None:
        """Follow the session from the moment at which it has an agent."""
        self._session = session
        self._live = live
        self._hooks = hooks
        session.on("conversation_item_added", self._agent_begins)
        session.on("agent_state_changed", self._agent_begins)
        self._agent_begins()
        if live.session is not None:
            live.enter_soon()

    @property
    def call(self) -> Call:
        """The live call: its state, epoch, lag and briefing."""
        return self._live.call

    async def stand_by(self, agent: Agent | None = None) -> bool:
        """Wait until this worker is to speak; True if the session is to be started, now.

        As `RecallAgent.stand_by`. The models of `agent` are connected meanwhile, if it has its own.
        """
        return await stand_by(self._live, self._session, agent)

    async def fresh(self) -> bool:
        """Whether this is a new call, to be greeted here: for an agent that greets in its own
        `on_enter`. Waits for the records at most as long as `Settings.seed_wait` leaves."""
        return await self._live.is_fresh()

    async def reconcile(self, resolver: Resolver, seconds: float = 3.0) -> tuple[Action, ...]:
        """As `RecallAgent.reconcile`: settle what a dead worker left open, in `on_resume`."""
        return await self._live.reconcile(resolver, seconds)

    async def closed(self) -> None:
        """Wait until everything of the call on this worker has ended, after its session."""
        await self._live.closed()

    def _agent_begins(self, event: object = None) -> None:
        """The first agent of the session is there, and about to start. A fault of ours never ends
        the session: the call goes on, unrecorded."""
        if self._live.session is not None:
            return
        try:
            agent = self._session.current_agent
        except RuntimeError:  # not started yet
            return
        try:
            self._live.attach(self._session, agent, self._hooks, by_itself=True)
        except Exception:
            logger.exception("the session could not be observed: this call is not recorded")


class _Hooks:
    """What the application gave, or the same as `RecallAgent` does."""

    def __init__(self, session: AgentSession[Any], audio: ResumeAudio | None, words: str) -> None:
        self._session = session
        self._audio = audio
        self._words = words
        self.given_fresh: OnFresh | None = None
        self.given_resume: OnResume | None = None
        self.given_handover: OnHandover | None = None
        self.given_lost: OnLeaseLost | None = None

    async def on_fresh(self) -> None:
        if self.given_fresh is not None:
            await self.given_fresh()

    async def on_resume(self, briefing: Briefing | None) -> None:
        if self.given_resume is not None:
            await self.given_resume(briefing)
        else:
            go_on(self._session, briefing, self._audio, self._words)

    async def on_handover(self, briefing: Briefing) -> None:
        if self.given_handover is not None:
            await self.given_handover(briefing)
        else:
            await go_on_after_handover(self._session, briefing, self.on_resume)

    async def on_lease_lost(self, reason: str) -> None:
        if self.given_lost is not None:
            await self.given_lost(reason)
