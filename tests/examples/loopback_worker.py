"""`livekit_worker.py` as it is, but that it listens on loopback alone and never says that it is
full: `python loopback_worker.py start`."""

from livekit.agents import cli
from livekit_worker import server

assert hasattr(server, "_host"), "livekit-agents has another name for it"
assert hasattr(server, "_port"), "livekit-agents has another name for it"
server._host, server._port = "127.0.0.1", 0
server.load_fnc = lambda *_: 0.05

if __name__ == "__main__":
    cli.run_app(server)
