"""`RecallAgent`: the agent that a LiveKit developer subclasses."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypedDict, Unpack

from livekit.agents import Agent, AgentSession, llm, stt, tts, vad
from livekit.agents.types import NotGivenOr
from livekit.agents.voice.turn import TurnHandlingOptions

from .actions import Resolver
from .call import Call
from .client import Recall
from .livekit.agents import Unattached, listen
from .livekit.bring_back import AgentFactory
from .livekit.going_on import go_on, go_on_after_handover
from .livekit.options import LiveOptions
from .livekit.session import LiveSession
from .livekit.sound.first_words import ResumeAudio, decoded
from .livekit.succession.standby import stand_by
from .livekit.tools.model_tools import ModelTool
from .livekit.tools.model_tools import model_tools as tools_of_ours
from .livekit.words import RESUME_WORDS
from .models import Action, Briefing
from .redaction import Redact
from .remote.address import is_remote
from .standing import IfHeld, IfLeaseLost

__all__ = ["AgentOptions", "RecallAgent"]

logger = logging.getLogger("recall_livekit")

# A worker's process takes one job: what the first call needs is loaded with the worker, not while
# a caller waits. Each is optional here, because it is loaded where it is used all the same.
_records = (
    "recall_livekit.remote.transport"
    if is_remote(os.environ.get("RECALL_URL", ""))
    else "recall_livekit.stores.sqlite_directory"
)
for _needed in ("anyio._backends._asyncio", _records):
    with suppress(ImportError):
        import_module(_needed)


class AgentOptions(TypedDict, total=False):
    """What LiveKit's `Agent` takes beside its instructions; passed on as it is."""

    id: str | None
    chat_ctx: NotGivenOr[llm.ChatContext | None]
    tools: list[llm.Tool | llm.Toolset] | None
    stt: NotGivenOr[stt.STT[Any] | str | None]
    vad: NotGivenOr[vad.VAD | None]
    llm: NotGivenOr[llm.LLM[Any] | llm.RealtimeModel | str | None]
    tts: NotGivenOr[tts.TTS[Any] | str | None]
    turn_handling: NotGivenOr[TurnHandlingOptions]
    min_consecutive_speech_delay: NotGivenOr[float]
    use_tts_aligned_transcript: NotGivenOr[bool]


class RecallAgent(Agent):
    """An agent whose call survives its worker.

    Construct it before the room is connected: it begins to read the call's records at once, and
    takes the lease in the background. Override `on_fresh` to greet, `on_resume` to go on after a
    crash, `on_lease_lost` to learn that another worker has the call.
    """

    def __init__(
        self,
        *,
        instructions: str,
        resume: str,
        recall: Recall | None = None,
        caller: str | None = None,
        if_held: IfHeld = "standby",
        if_lease_lost: IfLeaseLost = "standby",
        redact: Redact | None = None,
        userdata_type: type[object] | None = None,
        model_tools: Sequence[ModelTool] = (),
        shutdown_when_left: bool = True,
        resume_audio: ResumeAudio | str | os.PathLike[str] | bytes | None = None,
        resume_words: str = RESUME_WORDS,
        resume_agents: Mapping[str, AgentFactory] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Begin to read the call `resume` (the room's name).

        Args:
            instructions: As in LiveKit's `Agent`.
            resume: The call id: any string of 1 to 256 bytes.
            recall: Where the records live; default `Recall.open()` (`RECALL_URL`, or
                ``./recall-data``), closed with the call.
            caller: Who calls: the participant's identity or number. By default as the job tells,
                or, where that decides which call it is, whoever is in the room.
            if_held: What to do while a live worker has the call: be its silent "standby",
                "steal" it, or "leave" the room.
            if_lease_lost: What to do when another takes it: "standby", "leave", or go on to
                "speak" (unrecorded).
            redact: Applied to every text before it leaves the worker.
            userdata_type: The type in which `session.userdata` is given back.
            model_tools: Tools of ours that the model is given: "update_working_state" and
                "milestone" (it notes where it is, and what is done), "set_pointer" (where to find
                what it made), "fetch_output" (it reads long results that were kept aside).
            shutdown_when_left: Whether the job ends when the caller has left.
            resume_audio: A WAV (16 bit PCM; a path, its bytes, or a `ResumeAudio` made where the
                worker's module is imported) that `on_resume` plays at once, while the model still
                thinks.
            resume_words: What is said in `resume_audio`: it is shown, recorded, and told the model.
            resume_agents: What makes the agents that this one hands over to, by their labels (an
                agent's `id`). If one of them was active when the call was cut off, it is made and
                takes this one's place; neither's `on_enter` is called then. This one's `on_resume`
                has it say the first words, unless it is a `RecallAgent` itself. Give the label of
                an `AgentTask` the agent that awaits it.

        An `AgentSession` hears nothing during the first 3 s of its first speech (LiveKit's AEC
        warm-up). On a call that goes on we end that, unless the application gave
        `AgentSession(aec_warmup_duration=...)` itself: a caller who answers "hello?" is heard. The
        price: where the caller's echo canceller has not got used to the agent's voice by then,
        the agent may hear its own first words, and interrupt itself.

        Raises:
            InvalidCallId, InvalidSettings: See `Recall`; or `resume_audio` cannot be used.
        """
        self._live: LiveSession | None = None
        self._first_words = decoded(resume_audio)
        self._resume_words = resume_words
        self._options = LiveOptions(
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
        if model_tools:
            mine = tools_of_ours(lambda: self.call, model_tools)
            options["tools"] = [*(options.get("tools") or []), *mine]
        self._live = self._options.live()
        super().__init__(instructions=instructions, **options)
        listen(self, Unattached(lambda: self._attach(self.session)))

    @property
    def call(self) -> Call:
        """The live call: its state, epoch, lag and briefing."""
        if self._live is None:
            raise AttributeError("call")
        return self._live.call

    @property
    def session(self) -> AgentSession[Any]:
        """LiveKit's; still there for `on_resume` when another agent was brought back."""
        if self._live is not None and self._live.session is not None:
            return self._live.session
        return super().session

    async def fresh(self) -> bool:
        """Whether this is a new call, for an agent with an `on_enter` of its own; waits for the
        records at most as long as `seed_wait` leaves."""
        return self._live is None or await self._live.is_fresh()

    async def stand_by(self, session: AgentSession[Any]) -> bool:
        """Wait until this worker is to speak; True if the session is to be started, now.

        Write it in front of the start; an agent that was not dispatched as a standby waits for the
        read of its call alone, at most `seed_wait`, which its first reply then does not::

            if await agent.stand_by(session):
                await session.start(agent, room=ctx.room)

        A standby waits here until the call is its own: outside of the room ("following", at most
        50 minutes), or in it, silent, keeping the caller's last `Settings.standby_hears` seconds
        in memory, which the session hears first ("joined"). To join with options of your own
        (encryption), call `ctx.connect` before. `session`'s models are connected meanwhile.

        False: the call is over, its caller is gone, or it has another standby. The job is then
        being shut down.

        An agent that was dispatched by mistake while a live one has the call waits in the room
        likewise, or leaves (`if_held`), if that can be read within `seed_wait`.
        """
        return self._live is None or await stand_by(self._live, session, self)

    async def reconcile(self, resolver: Resolver, seconds: float = 3.0) -> tuple[Action, ...]:
        """Find out how the tool calls went that a dead worker left open, before the agent speaks
        of them: call it first in `on_resume`. Returns those that are still open.

        `resolver` is asked about each (see `Call.open_actions`), ten at a time and for `seconds`
        in all: it asks the payment provider, say, for the charge of `action.key`, and returns
        `Resolved("done", receipt)`, `Resolved("failed", "not charged")`, or None. What it says is
        recorded, and the model reads it as that call's output instead of "unknown".

        Raises nothing of ours: records that cannot be reached in time leave everything open.
        """
        return () if self._live is None else await self._live.reconcile(resolver, seconds)

    # --- hooks to override --------------------------------------------------------------------

    async def on_fresh(self) -> None:
        """Greet the caller of a new call. Silent by default, as LiveKit's `Agent` is."""

    async def on_resume(self, briefing: Briefing | None) -> None:
        """Go on with a call that another worker began; the agent speaks first.

        `briefing` tells what a person would want to know: `speaker` and `cut_sentence`, `silence`,
        `awaits_answer`, `actions` and `may_have_happened`. It is None if the records could not be
        read in time; the agent knows only that somebody was here before it.

        By default the model is told by `resume_instructions(briefing)` to say one short sentence
        and go on; what `reconcile` settled meanwhile counts. With `resume_audio` that is said
        first, at once.
        """
        if briefing is not None and self._live is not None:
            left = {"actions": self._live.call.briefing.actions}
            briefing = briefing.model_copy(update=left)
        go_on(self.session, briefing, self._first_words, self._resume_words)

    async def on_handover(self, briefing: Briefing) -> None:
        """Go on with a call that another worker gave away on purpose, at a deploy for instance;
        called instead of `on_resume`. The caller noticed nothing yet, so nobody apologises.

        Says the rest of a reply that was cut between two sentences, or answers a caller who has
        no answer yet; else waits for the caller. A worker that died before it could hand over was
        cut off in mid-sentence: then this is `on_resume`.
        """
        await go_on_after_handover(self.session, briefing, self.on_resume)

    async def on_lease_lost(self, reason: str) -> None:
        """Another worker has the call, or nobody ever will: `reason` is as in `Call.lost`."""

    # --- LiveKit's own ------------------------------------------------------------------------

    async def on_enter(self) -> None:
        """Call `on_fresh` or `on_resume`, within `seed_wait`; wait silently as a standby."""
        if self._live is not None:
            await self._live.enter()

    @property
    def _activity(self) -> Any:
        """LiveKit's own attribute. It is set before any hook runs, whichever are overridden.

        Until `Agent.__init__` sets it, it must be missing: livekit-agents looks at every
        property of the agent meanwhile, and takes only an AttributeError.
        """
        if "_live_activity" not in self.__dict__:
            raise AttributeError("_activity")
        return self.__dict__["_live_activity"]

    @_activity.setter
    def _activity(self, activity: Any) -> None:
        self.__dict__["_live_activity"] = activity
        if activity is not None:
            self._attach(activity.session)

    def _attach(self, session: AgentSession[Any]) -> None:
        """Never lets a fault of ours end the session: the call goes on, unrecorded."""
        try:
            live = LiveSession.of_session(session) or self._live
            if live is None or live.session not in (None, session):
                live = self._options.open()
            if self._live is not live and self._live is not None:
                self._live.discard()
            self._live = live
            live.attach(session, self, self)
        except Exception:
            logger.exception("the session could not be observed: this call is not recorded")
