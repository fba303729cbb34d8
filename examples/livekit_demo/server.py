"""A livekit-server of the demo's own, on loopback."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from livekit import api
from recovery.process import DemoFailed

from .processes import EXAMPLES, running

__all__ = ["LiveKit", "find_livekit_server", "livekit_server"]

MISSING = (
    "no livekit-server here. It is LiveKit's own, in Go; `make demo-livekit` builds it where Go "
    "1.24 or newer is installed (once, two minutes). Or download it from LiveKit's releases, and "
    "name it: LIVEKIT_SERVER_BIN=/path/to/livekit-server make demo-livekit"
)
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


@dataclass(frozen=True, slots=True)
class LiveKit:
    """Where a LiveKit server is, and how it is asked."""

    url: str
    key: str
    secret: str = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What a worker needs to know."""
        return {
            "LIVEKIT_URL": self.url,
            "LIVEKIT_API_KEY": self.key,
            "LIVEKIT_API_SECRET": self.secret,
        }

    def token(self, room: str, identity: str, agent_name: str) -> str:
        """Lets a caller in; the room is made, and its agent asked for, when they come."""
        access = api.AccessToken(self.key, self.secret).with_identity(identity)
        access = access.with_grants(api.VideoGrants(room_join=True, room=room))
        agent = api.RoomAgentDispatch(agent_name=agent_name)
        return access.with_room_config(api.RoomConfiguration(agents=[agent])).to_jwt()


def find_livekit_server() -> str:
    """The binary: `LIVEKIT_SERVER_BIN`, what `make` built, or what is on the path.

    Raises:
        DemoFailed: There is none; says how to get it.
    """
    named = os.environ.get("LIVEKIT_SERVER_BIN")
    built = EXAMPLES.parent / ".cache" / "bin" / "livekit-server"
    found = named or (str(built) if built.is_file() else shutil.which("livekit-server"))
    if not found or not shutil.which(found):
        raise DemoFailed(f"{found} is no program" if found else MISSING)
    return found


@asynccontextmanager
async def livekit_server(directory: Path) -> AsyncIterator[LiveKit]:
    """Run a livekit-server that only this machine can reach; its files are in `directory`."""
    binary = find_livekit_server()
    port, tcp, udp = free_ports(3)
    server = LiveKit(f"ws://127.0.0.1:{port}", "demo", secrets.token_hex(24))
    config = directory / "livekit.yaml"
    ports = {"port": port, "tcp": tcp, "udp": udp, "interface": loopback()}
    config.touch(mode=0o600)
    config.write_text(CONFIG.format(key=server.key, secret=server.secret, **ports))

    async def answers() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    log = directory / "livekit-server.log"
    async with running(binary, "--config", str(config), log=log) as process:
        await process.ready(answers)
        yield server


def loopback() -> str:
    """The name of this machine's loopback interface: lo on Linux, lo0 on macOS."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name in ("lo", "lo0")), "lo")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on; all different."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
