"""One connection to the Realtime API: events in, events out."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from recall_livekit.testing.voices import tones

from .conversation import Conversation, check_session
from .rules import Refused

if TYPE_CHECKING:
    from .server import OpenAIServer

__all__ = ["Live"]

Json = dict[str, Any]
SAMPLE_RATE = 24_000
WORD_MS = 60


class Live:
    """A session and its conversation, and what a test makes its caller do."""

    def __init__(self, server: OpenAIServer, socket: web.WebSocketResponse) -> None:
        self.server = server
        self.conversation = Conversation()
        self.session: Json = {}
        self.received: list[Json] = []
        """All events of the client, but for its audio."""
        self.prompts: list[list[Json]] = []
        """The conversation as it was at each response."""
        self.instructions: list[str] = []
        """What each response was told: the session's instructions, or its own."""
        self._socket = socket
        self._active: asyncio.Task[None] | None = None
        self._buffered = 0.0
        self._outgoing: asyncio.Queue[tuple[float, str]] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._send_in_order())

    # ---- what a test does

    async def user_says(
        self, text: str, *, transcript_after: float = 0.0, words: bool = False
    ) -> str:
        """The caller says something, which the server hears, answers, and transcribes; `words`:
        it is told word by word. Returns the item's id."""
        item_id = self.server.new_id("item")
        await self.send("input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=0)
        await self.send("input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=900)
        await self.send("input_audio_buffer.committed", item_id=item_id)
        part = {"type": "input_audio", "transcript": None}
        item = {"id": item_id, "type": "message", "role": "user", "content": [part]}
        await self._add(item, None)
        if words:
            await self.user_is_saying(item_id, text)
        self._spawn(self._transcribe(item, text, transcript_after))
        if transcript_after:
            part["transcript"] = text  # the model hears; only its client waits for the words
        else:
            await asyncio.sleep(0)
        self.answer({})
        return item_id

    async def user_is_saying(self, item_id: str, text: str) -> None:
        kind = "conversation.item.input_audio_transcription.delta"
        for word in text.split():
            await self.send(kind, item_id=item_id, content_index=0, delta=f"{word} ")

    async def hang_up(self) -> None:
        """Break the connection."""
        await self._socket.close()

    # ---- events of the client

    async def run(self) -> None:
        await self.send("session.created", session={"type": "realtime"})
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            event = json.loads(message.data)
            try:
                await self._handle(event)
            except Refused as refused:
                self.server.refused.append(refused)
                error = {**refused.body(), "event_id": event.get("event_id")}
                await self.send("error", error=error)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, event: Json) -> None:
        kind = event["type"]
        handlers = {
            "session.update": self._update,
            "conversation.item.create": self._create,
            "conversation.item.delete": self._delete,
            "conversation.item.truncate": self._truncate,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.clear": self._clear,
            "input_audio_buffer.commit": self._commit,
            "response.create": self._respond,
            "response.cancel": self._cancel,
        }
        if kind != "input_audio_buffer.append":
            self.received.append(event)
        if kind not in handlers:
            raise Refused(f"Invalid value: '{kind}'.", param="type", code="invalid_value")
        await handlers[kind](event)

    async def _update(self, event: Json) -> None:
        check_session(event["session"])
        self.session |= event["session"]
        await self.send("session.updated", session=self.session)

    async def _create(self, event: Json) -> None:
        await self._add(event["item"], event.get("previous_item_id"), self.server.ack_delay)

    async def _add(self, item: Json, previous: str | None, ack_delay: float = 0.0) -> None:
        before = self.conversation.create(item, previous)
        if ack_delay < math.inf:
            added = {"item": item, "previous_item_id": before}
            await self.send("conversation.item.added", after=ack_delay, **added)

    async def _delete(self, event: Json) -> None:
        self.conversation.delete(event["item_id"])
        await self.send("conversation.item.deleted", item_id=event["item_id"])

    async def _truncate(self, event: Json) -> None:
        item = self.conversation.get(event["item_id"], "item_truncate_invalid_item_id")
        if item.get("role") != "assistant" or item["content"][0]["type"] != "output_audio":
            raise Refused("Only model output audio messages can be truncated.", param="item_id")
        item["content"][0]["transcript"] = ""  # the API deletes the text that was not heard
        rest = {name: event[name] for name in ("item_id", "content_index", "audio_end_ms")}
        await self.send("conversation.item.truncated", **rest)

    async def _append(self, event: Json) -> None:
        self._buffered += len(base64.b64decode(event["audio"])) / 2 / SAMPLE_RATE

    async def _clear(self, event: Json) -> None:
        self._buffered = 0.0
        await self.send("input_audio_buffer.cleared")

    async def _commit(self, event: Json) -> None:
        if self._buffered < 0.1:
            raise Refused(
                "Error committing input audio buffer: buffer too small.",
                code="input_audio_buffer_commit_empty",
            )
        self._buffered = 0.0

    async def _respond(self, event: Json) -> None:
        if self._active is not None:
            raise Refused(
                "Conversation already has an active response in progress.",
                code="conversation_already_has_active_response",
            )
        self.conversation.check_whole()
        self.answer(event.get("response") or {})

    async def _cancel(self, event: Json) -> None:
        if self._active is None:
            raise Refused("Cancellation failed: no active response found.",
                          code="response_cancel_not_active")  # fmt: skip
        self._active.cancel()

    # ---- what the model says

    def answer(self, options: Json) -> None:
        """Begin a response to the conversation as it is."""
        self.prompts.append([dict(item) for item in self.conversation.items])
        told = options.get("instructions") or self.session.get("instructions") or ""
        self.instructions.append(told)
        self._active = self._spawn(self._say(options))

    async def _say(self, options: Json) -> None:
        response: Json = {"id": self.server.new_id("resp"), "object": "realtime.response"}
        response |= {"status": "in_progress", "metadata": options.get("metadata"), "output": []}
        await self.send("response.created", response=response)
        said = self.server.reply(self.prompts[-1])
        status = "cancelled"
        try:
            if isinstance(said, str):
                await self._speak(response["id"], said)
            else:
                await self._call(response["id"], said.name, said.arguments)
            status = "completed"
        finally:
            self._active = None
            await self.send("response.done", response={**response, "status": status})

    async def _call(self, response_id: str, name: str, arguments: str) -> None:
        call_id = self.server.new_id("call")
        item = {"id": self.server.new_id("item"), "type": "function_call", "call_id": call_id}
        item |= {"name": name, "arguments": ""}
        head: Json = {"response_id": response_id, "output_index": 0}
        await self.send("response.output_item.added", **head, item=item)
        item["arguments"] = arguments
        before = self.conversation.create(item, None)
        added = {**item, "arguments": ""}
        await self.send("conversation.item.added", item=added, previous_item_id=before)
        await self.send("response.output_item.done", **head, item=item)

    async def _speak(self, response_id: str, text: str) -> None:
        spoken = not self.server.text_only
        item: Json = {"id": self.server.new_id("item"), "type": "message", "role": "assistant"}
        head: Json = {"response_id": response_id, "output_index": 0}
        await self.send("response.output_item.added", **head, item={**item, "content": []})
        kind = "output_audio" if spoken else "output_text"
        part = {"type": kind, "transcript" if spoken else "text": ""}
        item["content"] = [part]
        before = self.conversation.create(item, None)
        await self.send("conversation.item.added", item={**item, "content": []},
                        previous_item_id=before)  # fmt: skip
        place = {**head, "item_id": item["id"], "content_index": 0}
        shown = {"type": "audio" if spoken else "text"}
        await self.send("response.content_part.added", **place, part=shown)
        for word in text.split():
            part["transcript" if spoken else "text"] += f"{word} "
            await self._say_word(place, word, spoken)
        await self.send("response.output_item.done", **head, item=item)

    async def _say_word(self, place: Json, word: str, spoken: bool) -> None:
        if not spoken:
            await self.send("response.output_text.delta", **place, delta=f"{word} ")
            return
        await self.send("response.output_audio_transcript.delta", **place, delta=f"{word} ")
        sound = b"".join(bytes(frame.data) for frame in tones(word, word_ms=WORD_MS))
        audio = base64.b64encode(sound).decode()
        await self.send("response.output_audio.delta", **place, delta=audio)
        await asyncio.sleep(0.005)

    async def _transcribe(self, item: Json, text: str, after: float) -> None:
        await asyncio.sleep(after)
        item["content"][0]["transcript"] = text
        kind = "conversation.item.input_audio_transcription.completed"
        await self.send(kind, item_id=item["id"], content_index=0, transcript=text, logprobs=None)

    async def send(self, kind: str, after: float = 0.0, **fields: Any) -> None:
        """Send an event of the server, `after` seconds if that is not before the one before it."""
        event = {"type": kind, "event_id": self.server.new_id("event"), **fields}
        self._outgoing.put_nowait((asyncio.get_running_loop().time() + after, json.dumps(event)))
        await asyncio.sleep(0)

    async def _send_in_order(self) -> None:
        while True:
            due, event = await self._outgoing.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            if not self._socket.closed:
                await self._socket.send_str(event)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
