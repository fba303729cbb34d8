"""A server that speaks OpenAI's APIs on loopback, and refuses what OpenAI refuses.

Chat completions (streamed), Responses (HTTP and WebSocket) and Realtime, as far as
livekit-plugins-openai uses them. What the model says is a script: a function of what it was given.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import WSMsgType, web

from .live import Live
from .rules import Refused, check_input, check_messages, check_tools

__all__ = ["Call", "OpenAIServer", "Reply", "openai_server", "texts"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """The model calls a tool."""

    name: str
    arguments: str = "{}"


Reply = str | Call
Script = Callable[[Sequence[Json]], Reply]


def texts(items: Sequence[Json]) -> list[tuple[str, str]]:
    """Roles and texts of messages or items, oldest first; of a tool's call and output likewise."""
    return [_text(item) for item in items]


def _text(item: Json) -> tuple[str, str]:
    if item.get("tool_calls"):
        function = item["tool_calls"][0]["function"]
        return "call", f"{function['name']}({function['arguments']})"
    if item.get("type") == "function_call":
        return "call", f"{item['name']}({item['arguments']})"
    if item.get("type") == "function_call_output":
        return "tool", item["output"]
    content = item.get("content") or ""
    if isinstance(content, list):
        content = " ".join(part.get("text") or part.get("transcript") or "" for part in content)
    return item["role"], content


def say_hello(items: Sequence[Json]) -> Reply:
    return "hello there"


@dataclass
class OpenAIServer:
    """Keeps what it was asked, and what it refused."""

    reply: Script = say_hello
    ack_delay: float = 0.0
    """Seconds until an item that a client adds is confirmed (Realtime); inf: never."""
    text_only: bool = False
    """Realtime answers in text though audio was asked for, as it does after loaded history."""
    url: str = ""
    prompts: list[list[Json]] = field(default_factory=list)
    """Each prompt that was accepted: messages, or input items after those they go on from."""
    refused: list[Refused] = field(default_factory=list)
    lives: list[Live] = field(default_factory=list)
    """Each connection to the Realtime API."""
    _ids: count[int] = field(default_factory=count)
    _responses: dict[str, tuple[list[Json], list[str]]] = field(default_factory=dict)

    @property
    def live(self) -> Live:
        """The newest connection to the Realtime API."""
        return self.lives[-1]

    def new_id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids):08}"

    # ---- chat completions

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        try:
            check_messages(body.get("messages"))
            check_tools(body)
        except Refused as refused:
            return self._refuse(refused)
        self.prompts.append(body["messages"])
        head: Json = {"id": self.new_id("chatcmpl"), "object": "chat.completion.chunk"}
        head |= {"created": 0, "model": body["model"]}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
            for delta, end in ((self._delta(body["messages"]), None), ({}, "stop"))
        ]
        return await _stream(request, [json.dumps(one) for one in chunks] + ["[DONE]"])

    def _delta(self, messages: Sequence[Json]) -> Json:
        said = self.reply(messages)
        if isinstance(said, str):
            return {"role": "assistant", "content": said}
        function = {"name": said.name, "arguments": said.arguments}
        call = {"index": 0, "id": self.new_id("call"), "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}

    def _refuse(self, refused: Refused) -> web.Response:
        self.refused.append(refused)
        return web.json_response({"error": refused.body()}, status=400)

    # ---- responses

    async def responses(self, request: web.Request) -> web.StreamResponse:
        try:
            events = self._response(await request.json())
        except Refused as refused:
            return self._refuse(refused)
        return await _stream(request, [json.dumps(event) for event in events])

    async def responses_socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                continue
            try:
                events = self._response(json.loads(message.data))
            except Refused as refused:
                self.refused.append(refused)
                events = [{"type": "error", "status": 400, "error": refused.body()}]
            for event in events:
                await socket.send_json(event)
        return socket

    def _response(self, body: Json) -> list[Json]:
        """Check a request, and return the events of its answer."""
        earlier, open_calls = list[Json](), list[str]()
        if previous := body.get("previous_response_id"):
            if previous not in self._responses:
                raise Refused(
                    f"Previous response with id '{previous}' not found.",
                    param="previous_response_id",
                    code="previous_response_not_found",
                )
            earlier, open_calls = self._responses[previous]
        check_input(body.get("input"), open_calls)
        check_tools(body)
        prompt = [*earlier, *body["input"]]
        self.prompts.append(prompt)
        return self._answer(self.new_id("resp"), body, prompt)

    def _answer(self, response_id: str, body: Json, prompt: list[Json]) -> list[Json]:
        said = self.reply(prompt)
        item = self._output_item(said)
        calls = [item["call_id"]] if isinstance(said, Call) else []
        self._responses[response_id] = ([*prompt, item], calls)
        response: Json = {"id": response_id, "object": "response", "created_at": 0, "output": []}
        response |= {"model": body["model"], "parallel_tool_calls": True, "tool_choice": "auto"}
        response |= {"tools": body.get("tools") or [], "status": "in_progress"}
        events: list[Json] = [{"type": "response.created", "response": response}]
        if isinstance(said, str):
            delta = {"type": "response.output_text.delta", "item_id": item["id"], "delta": said}
            events.append({**delta, "output_index": 0, "content_index": 0, "logprobs": []})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        ended = {**response, "status": "completed", "output": [item]}
        events.append({"type": "response.completed", "response": ended})
        return [{**event, "sequence_number": place} for place, event in enumerate(events)]

    def _output_item(self, said: Reply) -> Json:
        if isinstance(said, Call):
            item = {"type": "function_call", "id": self.new_id("fc"), "status": "completed"}
            return item | {
                "call_id": self.new_id("call"),
                "name": said.name,
                "arguments": said.arguments,
            }
        part = {"type": "output_text", "text": said, "annotations": []}
        item = {"type": "message", "id": self.new_id("msg"), "role": "assistant"}
        return item | {"status": "completed", "content": [part]}

    # ---- realtime

    async def realtime(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        live = Live(self, socket)
        self.lives.append(live)
        try:
            await live.run()
        finally:
            await live.aclose()
        return socket

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": []})


async def _stream(request: web.Request, lines: Sequence[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for line in lines:
        await response.write(f"data: {line}\n\n".encode())
        await asyncio.sleep(0)
    return response


@asynccontextmanager
async def openai_server(**options: Any) -> AsyncIterator[OpenAIServer]:
    """Answer on loopback within this block; `url` is what `base_url` is set to."""
    server, app = OpenAIServer(**options), web.Application()
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/v1/responses", server.responses)
    app.router.add_get("/v1/responses", server.responses_socket)
    app.router.add_get("/v1/realtime", server.realtime)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/v1"
    try:
        yield server
    finally:
        for live in server.lives:
            await live.hang_up()
        await runner.cleanup()
