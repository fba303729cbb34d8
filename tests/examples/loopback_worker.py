"""`livekit_worker.py` as it is, but that it listens on loopback alone and never says that it is
full: `python loopback_worker.py start`."""

from livekit.agents import cli
from livekit_worker import server

server.load_fnc = lambda *_: 0.05
server._host, server._port = "127.0.0.1", 0

if __name__ == "__main__":
    cli.run_app(server)
