"""A real livekit-server on loopback, for as long as a test or a demo needs it."""

import asyncio
import os
import secrets
import shutil
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from livekit import api

from .leash import free_ports, leashed, started

__all__ = ["LiveKitServer", "answers", "find_livekit_server"]

BUILT = Path(__file__).parents[2] / ".cache" / "bin" / "livekit-server"
"""Where `make` puts the one that it builds."""

CONFIG = """
port: {port}
bind_addresses: [127.0.0.1]
rtc:
  tcp_port: {tcp}
  udp_port: {udp}
  node_ip: 127.0.0.1
  use_external_ip: false
  enable_loopback_candidate: true
  interfaces: {{includes: [{interface}]}}
  stun_servers: [127.0.0.1:3478]
keys: {{{key}: {secret}}}
logging: {{level: info}}
"""


def find_livekit_server() -> str | None:
    """Return the binary: `LIVEKIT_SERVER_BIN`, what `make` built, or what is on the path; None if
    this machine has none.

    Raises:
        FileNotFoundError: `LIVEKIT_SERVER_BIN` names no program.
    """
    named = os.environ.get("LIVEKIT_SERVER_BIN")
    if named and not shutil.which(named):
        raise FileNotFoundError(f"{named} is no program")
    return named or shutil.which(str(BUILT)) or shutil.which("livekit-server")


class LiveKitServer:
    """`async with LiveKitServer(directory) as server`: it answers inside, and is gone after.

    Only this machine can reach it. Its config and its log are written to `directory`. It tells
    `webhooks`, addresses, its news. A room that its last caller left is closed after
    `departure_timeout` seconds; default LiveKit's own, 20.

    Entering raises FileNotFoundError if there is no binary, and NotStarted if it does not run.
    """

    def __init__(
        self,
        directory: Path,
        *,
        webhooks: Sequence[str] = (),
        departure_timeout: int | None = None,
    ) -> None:
        self.directory = directory
        self.key = "testing"
        self.secret = secrets.token_hex(24)
        self.port, self._tcp, self._udp = free_ports(3)
        self._webhooks = webhooks
        self._departure_timeout = departure_timeout
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"ws://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a worker needs to know of it."""
        names = ("LIVEKIT_URL", "LIVEKIT_API_KEY", "LIVEKIT_API_SECRET")
        return dict(zip(names, (self.url, self.key, self.secret), strict=True))

    def api(self) -> api.LiveKitAPI:
        """Its API, to be closed by `async with`."""
        return api.LiveKitAPI(self.url, self.key, self.secret)

    def token(self, room: str, identity: str, agent_name: str | None = None) -> str:
        """Let a participant into a room, which is made if it is not there; and if it is made, this
        agent is asked for, if one is named."""
        access = api.AccessToken(self.key, self.secret).with_identity(identity)
        access = access.with_grants(api.VideoGrants(room_join=True, room=room))
        if agent_name is not None:
            agent = api.RoomAgentDispatch(agent_name=agent_name)
            access = access.with_room_config(api.RoomConfiguration(agents=[agent]))
        return access.to_jwt()

    async def __aenter__(self) -> Self:
        binary = find_livekit_server()
        if binary is None:
            raise FileNotFoundError("no livekit-server: name it in LIVEKIT_SERVER_BIN")
        log = self.directory / "livekit-server.log"
        async with AsyncExitStack() as stack:
            command = (binary, "--config", str(self._write_config()))
            process = await stack.enter_async_context(leashed(*command, log=log))
            await started(process, lambda: answers(self.port), log)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _write_config(self) -> Path:
        path = self.directory / "livekit.yaml"
        path.touch(mode=0o600)  # it holds the secret
        path.write_text(self._config())
        return path

    def _config(self) -> str:
        ports = {"port": self.port, "tcp": self._tcp, "udp": self._udp}
        key = {"key": self.key, "secret": self.secret}
        text = CONFIG.format(interface=_loopback(), **key, **ports)
        if self._webhooks:
            text += f"webhook: {{api_key: {self.key}, urls: [{', '.join(self._webhooks)}]}}\n"
        if self._departure_timeout is not None:
            text += f"room: {{departure_timeout: {self._departure_timeout}}}\n"
        return text


async def answers(port: int) -> bool:
    """Return whether somebody listens on this port of this machine."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def _loopback() -> str:
    """The name of this machine's loopback interface: lo on Linux, lo0 on macOS."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name in ("lo", "lo0")), "lo")
