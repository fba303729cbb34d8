"""A server for tests: its app without a socket, or all of it on a free port of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx

from recall_livekit import Settings
from recall_livekit.seams import Clock
from recall_livekit.server.app import create_app
from recall_livekit.server.keys import Keys, Role
from recall_livekit.server.namespaces import SYSTEM_NAMESPACE, Namespaces
from recall_livekit.server.options import ServeOptions
from recall_livekit.server.serve import Listening, serve
from recall_livekit.server.state import ServerState
from recall_livekit.stores.base import Store
from recall_livekit.stores.opening import open_store

Json = dict[str, Any]
Opened = Callable[[str, str], Store]


class House:
    """One app over one store, and its clients."""

    def __init__(self, url: str, *, opened: Opened, clock: Clock | None, **app: Any) -> None:
        self.namespaces = Namespaces(url, clock=clock, opened=opened)
        self.keys = Keys(opened(url, SYSTEM_NAMESPACE), clock)
        self.app = create_app(self.namespaces, self.keys, **app)
        self.server: ServerState = self.app.state.server
        self._exit = AsyncExitStack()

    async def key(self, role: Role = "admin", namespace: str = "default") -> str:
        return (await self.keys.create(namespace, role, "a test's")).key

    async def client(self, role: Role = "admin", namespace: str = "default") -> httpx.AsyncClient:
        return await self.client_with(await self.key(role, namespace))

    async def client_with(self, key: str | None, **headers: str) -> httpx.AsyncClient:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app),
            base_url="http://127.0.0.1",
            headers=headers,
        )
        return await self._exit.enter_async_context(client)

    async def aclose(self) -> None:
        await self._exit.aclose()
        await self.keys.aclose()
        await self.namespaces.aclose()


@asynccontextmanager
async def house(
    directory: Path,
    *,
    opened: Opened = open_store,
    clock: Clock | None = None,
    **app: Any,
) -> AsyncIterator[House]:
    one = House(f"sqlite:///{directory}", opened=opened, clock=clock, **app)
    try:
        async with one.app.router.lifespan_context(one.app):
            yield one
    finally:
        await one.aclose()


@asynccontextmanager
async def served(
    directory: Path, settings: Settings | None = None, **options: Any
) -> AsyncIterator[Listening]:
    """The whole server in this event loop; it drains at the end."""
    wanted = ServeOptions(store_url=f"sqlite:///{directory}", port=0, drain_wait=2.0, **options)
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            await serve(wanted, settings, listening=listening.set_result)

        tasks.start_soon(run)
        with anyio.fail_after(10):
            told = await listening
        try:
            yield told
        finally:
            told.stop()


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 5.0) -> None:
    """Return once the condition holds."""
    with anyio.fail_after(seconds):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await anyio.sleep(0.01)


def lease(writer: str = "w1", *, attempt: str = "a1", ttl: Any = 6.0, **more: Any) -> Json:
    return {"writer": writer, "attempt": attempt, "ttl": ttl, **more}


def turn(content: str = "hello", role: str = "user") -> Json:
    return {"kind": "turn", "at": 1_800_000_000.0, "role": role, "content": content}


def unit(call: str, first: int = 1, *records: Json, writer: str = "w1", **more: Any) -> Json:
    under = more if "provisional" in more else {"epoch": 1, **more}
    told = list(records) or [turn(f"said {first}")]
    return {"call_id": call, "writer": writer, "first": first, "records": told, **under}


async def append(client: httpx.AsyncClient, *units: Json) -> list[Json]:
    """Post these units; return their answers."""
    response = await client.post("/v1/records", json={"units": list(units)})
    assert response.status_code == 200, response.text
    answers: list[Json] = response.json()["answers"]
    return answers


def problem(response: httpx.Response) -> Json:
    """Return the problem of a response, which must be one in every respect."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    told: Json = response.json()
    assert told["status"] == response.status_code
    assert told["title"]
    return told


def kind(response: httpx.Response) -> str:
    """Return the name of the error that a response tells of."""
    return str(problem(response)["type"]).rpartition(":")[2]


class Lines:
    """A stream that is open."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self, seconds: float = 5.0) -> Json:
        """Return the next event but `alive`."""
        with anyio.fail_after(seconds):
            while True:
                event: Json = json.loads(await anext(self._lines))
                if event["event"] != "alive":
                    return event

    async def rest(self, seconds: float = 5.0) -> list[Json]:
        """Return all events to the end of the stream."""
        with anyio.fail_after(seconds):
            return [json.loads(line) async for line in self._lines]


@asynccontextmanager
async def stream(client: httpx.AsyncClient, call: str, **query: Any) -> AsyncIterator[Lines]:
    async with client.stream("GET", f"/v1/calls/{call}/stream", params=query) as response:
        assert response.status_code == 200, await response.aread()
        yield Lines(response)


def client_of(listening: Listening, key: str | None = None) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(base_url=listening.url, headers=headers, timeout=10)
