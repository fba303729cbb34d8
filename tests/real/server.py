"""A real livekit-server on loopback, for as long as a test needs it."""

import asyncio
import os
import secrets
import shutil
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Self

from livekit import api

from .leash import leashed, started

ROOT = Path(__file__).parents[2]

CONFIG = """
port: {port}
bind_addresses: [127.0.0.1]
rtc:
  tcp_port: {tcp}
  udp_port: {udp}
  node_ip: 127.0.0.1
  use_external_ip: false
  enable_loopback_candidate: true
  interfaces: {{includes: [lo]}}
  stun_servers: [127.0.0.1:3478]
keys: {{{key}: {secret}}}
webhook: {{api_key: {key}, urls: [{webhooks}]}}
room: {{departure_timeout: 8}}
logging: {{level: info}}
"""


def find_server() -> str | None:
    """The livekit-server binary; None if this machine has none."""
    named = os.environ.get("LIVEKIT_SERVER_BIN")
    cached = ROOT / ".cache" / "bin" / "livekit-server"
    return named or (str(cached) if cached.is_file() else shutil.which("livekit-server"))


class LiveKitServer:
    """`async with LiveKitServer(directory) as server`: it answers inside, and is gone after.

    Its config and its log are written to `directory`. It tells `webhooks`, addresses, its news.
    """

    def __init__(self, directory: Path, *, webhooks: Sequence[str] = ()) -> None:
        self.directory = directory
        self._webhooks = webhooks
        self.key = "testing"
        self.secret = secrets.token_hex(24)
        self.port, self._tcp, self._udp = free_ports(3)
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to know of it."""
        names = ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET")
        return dict(zip(names, (self.url, self.key, self.secret), strict=True))

    def api(self) -> api.LiveKitAPI:
        """The server's API, to be closed by `async with`."""
        return api.LiveKitAPI(self.url, self.key, self.secret)

    def token(self, room: str, identity: str) -> str:
        """Lets a participant into a room; the room is made if it is not there."""
        access = api.AccessToken(self.key, self.secret).with_identity(identity)
        return access.with_grants(api.VideoGrants(room_join=True, room=room)).to_jwt()

    async def __aenter__(self) -> Self:
        binary = find_server()
        if binary is None:
            raise FileNotFoundError("no livekit-server: name it in LIVEKIT_SERVER_BIN")
        log = self.directory / "livekit-server.log"
        async with AsyncExitStack() as stack:
            command = (binary, "--config", str(self._write_config()))
            process = await stack.enter_async_context(leashed(*command, log=log))
            await started(process, self._answers, log)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _write_config(self) -> Path:
        path = self.directory / "livekit.yaml"
        ports = {"port": self.port, "tcp": self._tcp, "udp": self._udp}
        webhooks = ", ".join(self._webhooks)
        path.write_text(CONFIG.format(key=self.key, secret=self.secret, webhooks=webhooks, **ports))
        return path

    async def _answers(self) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.close()
            await writer.wait_closed()
            return True
        return False


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on; all different."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
