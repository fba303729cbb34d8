"""Who may be heard: a session is silent and deaf while another worker has its call."""

from __future__ import annotations

import asyncio
from typing import Any

from livekit.agents import AgentSession, SpeechCreatedEvent

from ...call import Call, CallState
from .gate import AudioGate, gate_text

__all__ = ["Voice"]


class Voice:
    """One session's voice, on or off as its call's standing says."""

    def __init__(self, call: Call, session: AgentSession[Any]) -> None:
        """Stand between the session and its outputs from now on."""
        self._call = call
        self._session = session
        self._deadline = 0.0
        self._silent = False
        self._held = False
        self._deaf = False
        self.begin_wait()
        self._stand_between()
        session.on("speech_created", self._stand_between)

    def _stand_between(self, event: SpeechCreatedEvent | None = None) -> None:
        """Gate the outputs; again before each speech, for an avatar may have replaced them."""
        output = self._session.output
        if output.audio is not None and not isinstance(output.audio, AudioGate):
            output.audio = AudioGate(output.audio, self._heard)
        if output.transcription is not None:
            gate_text(output.transcription, self._heard)

    def begin_wait(self, waited: float = 0.0) -> None:
        """From here on the first reply may wait `seed_wait` for us, in all (invariant 1), less
        what was `waited` already."""
        left = max(0.0, self._call.settings.seed_wait - waited)
        self._deadline = asyncio.get_running_loop().time() + left

    @property
    def wait_left(self) -> float:
        """How much of `seed_wait` is left, in seconds."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    def hold(self) -> None:
        """Be heard no more, but hear on: the call is about to be given away."""
        self._held = True

    def let_go(self) -> None:
        """Be heard again: it was not."""
        self._held = False

    def silence(self) -> None:
        """Stop what is being said, and hear nothing: a second agent must not answer."""
        self._silent = True
        if self._session.input.audio is not None and self._session.input.audio_enabled:
            self._session.input.set_audio_enabled(False)
            self._deaf = True
        if self._session.current_speech is not None:
            self._session.interrupt(force=True)

    def speak(self) -> bool:
        """Hear and be heard again; return whether it was silent until now."""
        was_silent, self._silent = self._silent, False
        if self._deaf:
            self._session.input.set_audio_enabled(True)
            self._deaf = False
        return was_silent

    async def _heard(self) -> bool:
        """Whether sound may pass; the first waits for the acquire's answer (rule 19)."""
        if self._held:
            return False
        if self._call.state in (CallState.READING, CallState.ACQUIRING) and self.wait_left > 0:
            await self._call.answered(self.wait_left)
        return await self._call.settled()
