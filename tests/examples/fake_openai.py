"""A server that answers as OpenAI's does, as far as a voice agent asks it; it refuses a history
that OpenAI would refuse."""

import json
import wave
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiohttp import web
from livekit_demo import script

from ..openai.rules import Refused, check_messages

Message = dict[str, Any]
LONG_S = 2.2
"""A recording that is longer is the caller's order, with some silence around it."""


class FakeOpenAI:
    """Keeps what it was asked; `url` is what `OPENAI_BASE_URL` is set to."""

    def __init__(self) -> None:
        self.url = ""
        self.prompts: list[Sequence[Message]] = []

    async def chat(self, request: web.Request) -> web.StreamResponse:
        messages = (await request.json())["messages"]
        try:
            check_messages(messages)
        except Refused as refused:
            return web.json_response({"error": refused.body()}, status=400)
        self.prompts.append(messages)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta, end in ((answer(messages), None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": end}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "fake"}
            await response.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async def speech(self, request: web.Request) -> web.Response:
        spoken = script.AGENT_VOICE.speak((await request.json())["input"])
        body = BytesIO()
        with wave.open(body, "wb") as file:
            file.setparams((1, 2, spoken.sample_rate, 0, "NONE", ""))
            file.writeframes(spoken.samples.tobytes())
        return web.Response(body=body.getvalue(), content_type="audio/wav")

    async def transcript(self, request: web.Request) -> web.Response:
        form = await request.post()
        recording = form["file"]
        assert isinstance(recording, web.FileField)
        with wave.open(recording.file, "rb") as file:
            seconds = file.getnframes() / file.getframerate()
        return web.json_response({"text": script.ORDER if seconds > LONG_S else script.YES})


@asynccontextmanager
async def fake_openai() -> AsyncIterator[FakeOpenAI]:
    """Answer on loopback within this block."""
    fake, app = FakeOpenAI(), web.Application()
    app.router.add_post("/v1/chat/completions", fake.chat)
    app.router.add_post("/v1/audio/speech", fake.speech)
    app.router.add_post("/v1/audio/transcriptions", fake.transcript)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    fake.url = f"http://{host}:{port}/v1"
    try:
        yield fake
    finally:
        await runner.cleanup()


def answer(messages: Sequence[Message]) -> Message:
    """What the model says: it notes what it is told, confirms, books, and says what was booked."""
    last, users = messages[-1], [text_of(one) for one in messages if one["role"] == "user"]
    if last["role"] == "tool":
        noted = text_of(last) == "Noted."
        return {"role": "assistant", "content": script.CONFIRM if noted else text_of(last)}
    if last["role"] != "user":
        known = script.ORDER in users
        return {"role": "assistant", "content": script.RESUMED if known else script.GREETING}
    if text_of(last) == script.YES:
        return called("book", {})
    return called("note", {"field": "people", "value": "four"})


def called(tool: str, arguments: dict[str, str]) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{tool}", "type": "function", "function": function}
    return {"role": "assistant", "tool_calls": [call]}


def text_of(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)
