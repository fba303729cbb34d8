"""`session.userdata`: the application's own state, recorded as JSON and given back typed."""

from __future__ import annotations

import logging
from typing import Any, Generic, TypeVar

from livekit.agents import AgentSession
from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from ..call import Call
from ..errors import Closed, OutboxFull, ReadOnly

__all__ = ["UserdataKeeper"]

logger = logging.getLogger("recall_livekit")
T = TypeVar("T")


class UserdataKeeper(Generic[T]):
    """Records userdata when it changed, and restores it where the application set none."""

    def __init__(self, wanted: type[T] | None) -> None:
        """`wanted` is the type to give back; None gives the raw mapping."""
        self._wanted = wanted
        self._recorded: JsonValue = None
        self._warned = False

    def note(self, session: AgentSession[Any], call: Call) -> None:
        """Record the session's userdata if it changed. Never raises: the call goes on."""
        try:
            data = to_jsonable_python(_userdata(session))
            if data is None or data == self._recorded:
                return
            call.record_userdata(data)
            self._recorded = data
        except (ReadOnly, Closed, OutboxFull) as error:
            logger.debug("userdata not recorded: %s", error)
        except Exception as error:  # whatever the application's objects do
            self._warn("userdata cannot be recorded and will not come back: %s", error)

    def restore(self, session: AgentSession[Any], data: JsonValue) -> None:
        """Give recorded userdata back, unless the application has set its own already."""
        if data is None or _userdata(session) is not None:
            return
        self._recorded = data
        session.userdata = self._typed(data)

    def _typed(self, data: JsonValue) -> T | JsonValue:
        if self._wanted is None:
            return data
        try:
            return TypeAdapter(self._wanted).validate_python(data)
        except (ValueError, TypeError) as error:
            self._warn("recorded userdata does not fit its type; it comes back as it is: %s", error)
            return data

    def _warn(self, message: str, error: Exception) -> None:
        if not self._warned:
            logger.warning(message, error)
        self._warned = True


def _userdata(session: AgentSession[Any]) -> Any:
    try:
        return session.userdata
    except ValueError:
        return None
