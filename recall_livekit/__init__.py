"""A voice call that survives its worker: `RecallAgent` for LiveKit, `Recall` for anything else.

Importing this needs neither a server nor a driver; LiveKit is imported when `RecallAgent` is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    Closed,
    Erased,
    Fenced,
    Gap,
    Held,
    InvalidCallId,
    InvalidInput,
    InvalidRecord,
    InvalidSettings,
    KeyRefused,
    OutboxFull,
    OutputMissing,
    ReadOnly,
    RecallError,
    RoleTooLow,
    RoomsUnavailable,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    UnknownRun,
)

if TYPE_CHECKING:
    from .actions import Begun, Resolved, action, action_key
    from .agent import RecallAgent
    from .attached import Attached, attach
    from .call import Call, CallState
    from .client import Recall
    from .engine.listing import CallSummary
    from .engine.runs import Origin
    from .livekit.sound.first_words import ResumeAudio
    from .livekit.tools.model_tools import model_tools
    from .livekit.words import resume_instructions
    from .livekit.worker.agent_server import RecallAgentServer
    from .livekit.worker.watching import WatcherOptions
    from .models import Action, Briefing, Output, Partial, Pointer, Turn, WorkingState
    from .settings import Settings
    from .watcher import Watcher, WatcherSettings

__all__ = [
    "Action",
    "Attached",
    "Begun",
    "Briefing",
    "Call",
    "CallState",
    "CallSummary",
    "Closed",
    "Erased",
    "Fenced",
    "Gap",
    "Held",
    "InvalidCallId",
    "InvalidInput",
    "InvalidRecord",
    "InvalidSettings",
    "KeyRefused",
    "Origin",
    "OutboxFull",
    "Output",
    "OutputMissing",
    "Partial",
    "Pointer",
    "ReadOnly",
    "Recall",
    "RecallAgent",
    "RecallAgentServer",
    "RecallError",
    "Resolved",
    "ResumeAudio",
    "RoleTooLow",
    "RoomsUnavailable",
    "Settings",
    "StoreError",
    "StoreUnavailable",
    "StoreUnusable",
    "Turn",
    "UnknownRun",
    "Watcher",
    "WatcherOptions",
    "WatcherSettings",
    "WorkingState",
    "action",
    "action_key",
    "attach",
    "model_tools",
    "resume_instructions",
]

_HOMES = {
    "Action": "models",
    "Attached": "attached",
    "Begun": "actions",
    "Briefing": "models",
    "Call": "call",
    "CallState": "call",
    "CallSummary": "engine.listing",
    "Origin": "engine.runs",
    "Output": "models",
    "Partial": "models",
    "Pointer": "models",
    "Recall": "client",
    "RecallAgent": "agent",
    "RecallAgentServer": "livekit.worker.agent_server",
    "Resolved": "actions",
    "ResumeAudio": "livekit.sound.first_words",
    "Settings": "settings",
    "Turn": "models",
    "Watcher": "watcher",
    "WatcherOptions": "livekit.worker.watching",
    "WatcherSettings": "watcher",
    "WorkingState": "models",
    "action": "actions",
    "action_key": "actions",
    "attach": "attached",
    "model_tools": "livekit.tools.model_tools",
    "resume_instructions": "livekit.words",
}


def __getattr__(name: str) -> object:
    """Import a public name where it lives, at its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
