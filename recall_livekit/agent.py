"""`RecallAgent`: the agent that a LiveKit developer subclasses."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal, TypedDict, Unpack

from livekit.agents import Agent, AgentSession, FlushSentinel, ModelSettings, llm, stt, tts, vad
from livekit.agents.types import NotGivenOr
from livekit.agents.voice.turn import TurnHandlingOptions

from .call import Call
from .client import Recall
from .livekit.first_words import ResumeAudio, decoded
from .livekit.handover import what_is_due
from .livekit.place import Place
from .livekit.session import LiveSession
from .livekit.standby import stand_by
from .livekit.tools import working_state_tool
from .livekit.userdata import UserdataKeeper
from .models import Briefing
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

RESUME_INSTRUCTIONS = (
    "The line was interrupted for a moment in the middle of this call, and you are back. In the "
    "caller's language, say one short natural sentence to pick up where you were, and go on from "
    "there. Do not greet again, do not start over, and do not repeat what was already said."
)
RESUME_WORDS = "Sorry, the line dropped for a second."
RESUME_AFTER_WORDS = (
    "The line was interrupted for a moment in the middle of this call, and you are back. The "
    "caller was just told: “{words}”. Go on from where you were, in the caller's language, in one "
    "or two short natural sentences. Do not apologise again, do not greet again, do not start "
    "over, and do not repeat what was already said."
)

REST_INSTRUCTIONS = (
    "You were in the middle of your last reply: “... {words}” was the last that the caller heard. "
    "Say the rest of it now, right from there, in the caller's language. The caller noticed "
    "nothing: do not apologise, do not greet, and do not repeat what was already said."
)
LAST_WORDS = 12


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
        model_tools: tuple[Literal["update_working_state"], ...] = (),
        shutdown_when_left: bool = True,
        resume_audio: ResumeAudio | str | os.PathLike[str] | bytes | None = None,
        resume_words: str = RESUME_WORDS,
        **options: Unpack[AgentOptions],
    ) -> None:
        """Begin to read the call `resume` (the room's name).

        Args:
            instructions: As in LiveKit's `Agent`.
            resume: The call id: any string of 1 to 256 bytes.
            recall: Where the records live; default `Recall.open()` (`RECALL_URL`, or
                ``./recall-data``), closed with the call.
            caller: Who calls, if the job does not tell: the participant's identity or number.
            if_held: What to do while a live worker has the call: be its silent "standby",
                "steal" it, or "leave" the room.
            if_lease_lost: What to do when another takes it: "standby", "leave", or go on to
                "speak" (unrecorded).
            redact: Applied to every text before it leaves the worker.
            userdata_type: The type in which `session.userdata` is given back.
            model_tools: Tools of ours that the model is given.
            shutdown_when_left: Whether the job ends when the caller has left.
            resume_audio: A WAV (16 bit PCM; a path, its bytes, or a `ResumeAudio` made where the
                worker's module is imported) that `on_resume` plays at once, while the model still
                thinks.
            resume_words: What is said in `resume_audio`: it is shown, recorded, and told the model.

        An `AgentSession` hears nothing during the first 3 s of its first speech (LiveKit's AEC
        warm-up). On a call that goes on we end that, unless the application gave
        `AgentSession(aec_warmup_duration=...)` itself: a caller who answers "hello?" is heard. The
        price: where the caller's echo canceller has not got used to the agent's voice by then,
        the agent may hear its own first words, and interrupt itself.

        Raises:
            InvalidCallId, InvalidSettings: See `Recall`; or `resume_audio` cannot be used.
        """
        self._live: LiveSession | None = None
        self._place = Place.here()
        self._first_words = decoded(resume_audio)
        self._resume_words = resume_words
        self._userdata_keeper = UserdataKeeper(userdata_type)
        self._shutdown_when_left = shutdown_when_left
        self._recall = recall
        self._call_options: dict[str, Any] = {
            "call_id": resume,
            "room_sid": self._place.room_sid,
            "caller": caller or self._place.caller,
            "agent_name": self._place.agent_name,
            "if_held": if_held,
            "if_lease_lost": if_lease_lost,
            "redact": redact,
        }
        if "update_working_state" in model_tools:
            mine = working_state_tool(lambda: self.call)
            options["tools"] = [*(options.get("tools") or []), mine]
        self._live = LiveSession.of_job(resume, self._place.job) or self._open()
        super().__init__(instructions=instructions, **options)

    @property
    def call(self) -> Call:
        """The live call: its state, epoch, lag and briefing."""
        if self._live is None:
            raise AttributeError("call")
        return self._live.call

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

    # --- hooks to override --------------------------------------------------------------------

    async def on_fresh(self) -> None:
        """Greet the caller of a new call. Silent by default, as LiveKit's `Agent` is."""

    async def on_resume(self, briefing: Briefing | None) -> None:
        """Go on with a call that another worker began; the agent speaks first.

        `briefing` is None if the records could not be read in time; the agent knows only that
        somebody was here before it. With `resume_audio` that is said first, at once.
        """
        if self._first_words is None:
            self.session.generate_reply(instructions=RESUME_INSTRUCTIONS)
            return
        self.session.say(self._resume_words, audio=self._first_words.frames())
        told = RESUME_AFTER_WORDS.format(words=self._resume_words)
        self.session.generate_reply(instructions=told)

    async def on_handover(self, briefing: Briefing) -> None:
        """Go on with a call that another worker gave away on purpose, at a deploy for instance;
        called instead of `on_resume`. The caller noticed nothing yet, so nobody apologises.

        Says the rest of a reply that was cut between two sentences, or answers a caller who has
        no answer yet; else waits for the caller. A worker that died before it could hand over was
        cut off in mid-sentence: then this is `on_resume`.
        """
        match what_is_due(briefing):
            case "resume":
                await self.on_resume(briefing)
            case "rest":
                last = briefing.turns[-1].content.split()[-LAST_WORDS:]
                told = REST_INSTRUCTIONS.format(words=" ".join(last))
                self.session.generate_reply(instructions=told)
            case "answer":
                self.session.generate_reply()

    async def on_lease_lost(self, reason: str) -> None:
        """Another worker has the call, or nobody ever will: `reason` is as in `Call.lost`."""

    # --- LiveKit's own ------------------------------------------------------------------------

    async def on_enter(self) -> None:
        """Call `on_fresh` or `on_resume`, within `seed_wait`; wait silently as a standby."""
        if self._live is not None:
            if self._live.session is None:
                logger.warning(
                    "this livekit-agents does not tell when an agent starts: an agent that "
                    "overrides on_enter without super() will not be recorded"
                )
                self._attach(self)
            await self._live.enter()

    async def llm_node(
        self, chat_ctx: llm.ChatContext, tools: list[llm.Tool], model_settings: ModelSettings
    ) -> AsyncIterable[llm.ChatChunk | str | FlushSentinel]:
        """LiveKit's default, with the seed in the context."""
        if self._live is not None:
            await self._live.before_model(chat_ctx)
        async for chunk in Agent.default.llm_node(self, chat_ctx, tools, model_settings):
            yield chunk

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
            self._attach(activity)

    def _attach(self, activity: Any) -> None:
        """Never lets a fault of ours end the session: the call goes on, unrecorded."""
        try:
            session = activity.session
            live = LiveSession.of_session(session) or self._live
            if live is None or live.session not in (None, session):
                live = self._open()
            if self._live is not live and self._live is not None:
                self._live.discard()
            self._live = live
            live.attach(session, self, self)
        except Exception:
            logger.exception("the session could not be observed: this call is not recorded")

    def _open(self) -> LiveSession:
        recall = self._recall or Recall.open()
        return LiveSession(
            recall.resume(**self._call_options),
            self._place,
            self._userdata_keeper,
            recall=recall,
            owned=self._recall is None,
            shutdown_when_left=self._shutdown_when_left,
        )
