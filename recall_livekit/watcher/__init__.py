"""The watcher: dispatches a new agent to a room whose agent died, froze, or never came."""

from .settings import WatcherSettings
from .watcher import Watcher

__all__ = ["Watcher", "WatcherSettings"]
