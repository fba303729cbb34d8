"""The caller's last seconds, kept by a standby in the room: in memory alone, and bounded."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Iterator

from livekit import rtc
from livekit.agents.job import DEFAULT_PARTICIPANT_KINDS

__all__ = ["CallerEar", "Ring", "caller_name", "is_caller"]

logger = logging.getLogger("recall_livekit")

NUMBER = "sip.phoneNumber"
"""LiveKit's attribute of a participant who calls by telephone."""
SAMPLE_RATE = 24_000
FRAME_MS = 50
"""As long as a session's own frames: shorter ones only cost a waiting process."""


class Ring:
    """The last `seconds` of one voice, mono, 16 bit, at `SAMPLE_RATE`."""

    def __init__(self, seconds: float) -> None:
        """Hold nothing yet."""
        self._frames: deque[tuple[float, rtc.AudioFrame]] = deque(
            maxlen=max(1, int(seconds * 1000 / FRAME_MS))
        )

    def add(self, frame: rtc.AudioFrame, at: float) -> None:
        """Take in a frame whose last sample was heard `at` (Unix seconds)."""
        self._frames.append((at, frame))

    def clear(self) -> None:
        """Forget everything."""
        self._frames.clear()

    def between(self, since: float, before: float) -> bytes:
        """Return the samples that were heard in this span of time, as far as they are kept."""
        parts = [_part(frame, began, since, before) for began, frame in self._placed()]
        return b"".join(reversed(parts))

    def _placed(self) -> Iterator[tuple[float, rtc.AudioFrame]]:
        """Yield each frame, the newest first, and when it began. One that a busy event loop took
        in late, at once with those after it, began before them all the same."""
        following = math.inf
        for at, frame in reversed(self._frames):
            following = min(at, following) - frame.samples_per_channel / frame.sample_rate
            yield following, frame


def _part(frame: rtc.AudioFrame, began: float, since: float, before: float) -> bytes:
    first, end = (_sample(frame, moment - began) for moment in (since, before))
    return bytes(frame.data.cast("b")[2 * first : 2 * end])


def _sample(frame: rtc.AudioFrame, seconds: float) -> int:
    return min(frame.samples_per_channel, max(0, round(seconds * frame.sample_rate)))


def is_caller(participant: rtc.RemoteParticipant) -> bool:
    """Whether this is somebody whom an agent serves: no other agent, no recorder."""
    return participant.kind in DEFAULT_PARTICIPANT_KINDS


def caller_name(participant: rtc.RemoteParticipant) -> str:
    """Return what names this caller on another day and in another room: the telephone number if
    there is one, else the identity."""
    return participant.attributes.get(NUMBER) or participant.identity


class CallerEar:
    """Listens to the microphone of one caller in a connected room; nothing else is subscribed.

    The caller is the preferred one, else the first one who has a microphone; if that one leaves,
    the next.
    """

    def __init__(self, room: rtc.Room, seconds: float) -> None:
        """Listen from now on, and remember the last `seconds`."""
        self.ring = Ring(seconds)
        self.identity: str | None = None
        self._preferred: str | None = None
        self._room = room
        self._reading: asyncio.Task[None] | None = None
        room.on("track_published", self._published)
        room.on("track_subscribed", self._subscribed)
        room.on("participant_disconnected", self._gone)
        self._look()

    def prefer(self, caller: str | None) -> None:
        """Listen to this caller, by name or identity, whenever he is there; what was heard of
        another is forgotten then."""
        self._preferred = caller
        there = self._room.remote_participants.values()
        wanted = next((one for one in there if self._is_preferred(one)), None)
        if wanted is not None and self.identity not in (None, wanted.identity):
            self._forget()

    async def aclose(self) -> None:
        """Stop listening; what was heard stays."""
        self._room.off("track_published", self._published)
        self._room.off("track_subscribed", self._subscribed)
        self._room.off("participant_disconnected", self._gone)
        await self._stop()

    def _look(self) -> None:
        for participant in self._room.remote_participants.values():
            for publication in participant.track_publications.values():
                self._published(publication, participant)
                if publication.track is not None:
                    self._subscribed(publication.track, publication, participant)

    def _published(
        self, publication: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant
    ) -> None:
        if self._is_preferred(participant) and self.identity not in (None, participant.identity):
            self._forget()
        if self._is_wanted(publication, participant):
            publication.set_subscribed(True)

    def _subscribed(
        self,
        track: rtc.Track,
        publication: rtc.RemoteTrackPublication,
        participant: rtc.RemoteParticipant,
    ) -> None:
        if not self._is_wanted(publication, participant):
            return
        self.identity = participant.identity
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.create_task(self._read(track), name="recall ear")

    def _is_wanted(
        self, publication: rtc.RemoteTrackPublication, participant: rtc.RemoteParticipant
    ) -> bool:
        others = self._room.remote_participants.values()
        first = self._is_preferred(participant) or not any(map(self._is_preferred, others))
        mine = first and self.identity in (None, participant.identity)
        microphone = publication.source == rtc.TrackSource.SOURCE_MICROPHONE
        return mine and microphone and is_caller(participant)

    def _gone(self, participant: rtc.RemoteParticipant) -> None:
        if participant.identity == self.identity:
            self._forget()

    def _forget(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self.identity = None
        self.ring.clear()
        self._look()

    def _is_preferred(self, participant: rtc.RemoteParticipant) -> bool:
        if self._preferred is None or not is_caller(participant):
            return False
        return self._preferred in (participant.identity, caller_name(participant))

    async def _read(self, track: rtc.Track) -> None:
        stream = rtc.AudioStream.from_track(
            track=track, sample_rate=SAMPLE_RATE, num_channels=1, frame_size_ms=FRAME_MS
        )
        try:
            async for event in stream:
                self.ring.add(event.frame, time.time())
        except Exception:
            logger.exception("the caller cannot be heard while this standby waits")
        finally:
            await stream.aclose()

    async def _stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None
