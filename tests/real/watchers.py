"""Watchers as processes of their own, and LiveKit's webhooks on their way to them."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from recall_livekit.testing.leash import free_ports, kill, leashed, started
from recall_livekit.watcher.endpoint import WEBHOOK_PATH

from ..cli.terminal import COMMAND
from .stage import Stage
from .workers import AGENT


class WatcherProcess:
    """`recall-livekit watch`; it can be killed and come back."""

    def __init__(self, name: str, directory: Path, stage: Stage, *options: str) -> None:
        self.log = directory / f"{name}.log"
        (port,) = free_ports(1)
        self.lives = False
        """Whether it was started, and not killed since."""
        self._address = f"127.0.0.1:{port}"
        self._stage = stage
        self._options = options
        self._stack = AsyncExitStack()

    @property
    def webhook_url(self) -> str:
        return f"http://{self._address}{WEBHOOK_PATH}"

    @property
    def told(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    @property
    def acts(self) -> bool:
        """Whether it is the one that acts, as it says itself."""
        return self.told.rfind("this watcher acts") > self.told.rfind("this watcher stands by")

    async def start(self) -> None:
        """Returns when it acts, or would."""
        self.log.unlink(missing_ok=True)
        command = (
            *(*COMMAND, "watch", "--log-level", "debug"),
            *("--url", self._stage.records, "--agent-name", AGENT),
            *("--serve-rooms", "served*", "--listen", self._address, *self._options),
        )
        environment = os.environ | self._stage.server.environment
        async with AsyncExitStack() as stack:
            self._process = await stack.enter_async_context(
                leashed(*command, log=self.log, env=environment)
            )
            await started(self._process, self._ready, self.log)
            self._stack = stack.pop_all()
            self.lives = True

    def kill(self) -> None:
        """By SIGKILL, whatever it is doing."""
        self.lives = False
        kill(self._process)

    async def end(self) -> None:
        await self._stack.aclose()

    async def _ready(self) -> bool:
        try:
            async with aiohttp.request("GET", f"http://{self._address}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@dataclass(frozen=True, slots=True)
class Webhook:
    """One that LiveKit's server sent: signed by it, as long as the body stays what it is."""

    body: bytes
    authorization: str

    @property
    def room(self) -> str:
        return str(json.loads(self.body).get("room", {}).get("name", ""))


class Webhooks:
    """`async with Webhooks() as hooks`: where LiveKit sends them, and from where they go on.

    Each goes on to all `targets`, so many `times`: 0 loses them.
    """

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self.targets: Sequence[str] = ()
        self.times = 1
        self.received: list[Webhook] = []
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(aiohttp.ClientSession())
            app = web.Application()
            app.router.add_post("/", self._receive)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def send(self, one: Webhook) -> list[int]:
        """Sends it to every watcher, and returns what they answer."""
        return [await self._post(target, one) for target in self.targets]

    async def _receive(self, request: web.Request) -> web.Response:
        one = Webhook(await request.read(), request.headers.get("Authorization", ""))
        self.received.append(one)
        for _ in range(self.times):
            await asyncio.gather(*(self._post(target, one) for target in self.targets))
        return web.Response()

    async def _post(self, target: str, one: Webhook) -> int:
        headers = {
            "Authorization": one.authorization,
            "Content-Type": "application/webhook+json",
        }
        try:
            async with self._session.post(target, data=one.body, headers=headers) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0  # that watcher is not there
