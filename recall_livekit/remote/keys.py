"""The key that a worker shows to its Recall server, and how a rotated one is picked up."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from ..errors import InvalidSettings, KeyRefused
from ..seams import Clock

__all__ = ["ApiKey", "KeySource", "key_source", "namespace_of"]

_Ask = Callable[[], str] | Callable[[], Awaitable[str]]
ApiKey = str | _Ask
"""A key, or a function that returns the newest one. It is called in a thread of its own (an async
one on the event loop) at the first request, and again when the server refuses what it returned."""

ASK_INTERVAL = 1.0
"""A source is asked at most this often (seconds), however many requests are refused."""


class KeySource:
    """Knows the key; asks again, at most every `ASK_INTERVAL`, when it was refused."""

    def __init__(self, clock: Clock, *, key: str | None = None, ask: _Ask | None = None) -> None:
        """Ask nothing yet. With neither, no key is shown."""
        self._clock = clock
        self._key = key
        self._ask = ask
        self._asked: float | None = None
        self._asking = anyio.Lock()

    @property
    def shows_key(self) -> bool:
        """Whether requests carry a key."""
        return self._key is not None or self._ask is not None

    async def current(self) -> str | None:
        """Return the key, None if there is none to show.

        Raises:
            KeyRefused: It cannot be had.
        """
        if self._key is None and self._ask is not None and not await self.renewed(None):
            raise KeyRefused("the key could not be had a moment ago; it is asked for again")
        return self._key

    async def renewed(self, refused: str | None) -> bool:
        """Whether there is another key than the one that was refused.

        Raises:
            KeyRefused: It cannot be had.
        """
        if self._ask is None:
            return False
        async with self._asking:
            now = self._clock.monotonic()
            due = self._asked is None or now - self._asked >= ASK_INTERVAL
            if self._key == refused and due:
                self._asked = now
                self._key = await _asked(self._ask)
        return self._key != refused


def key_source(given: ApiKey | None, clock: Clock) -> KeySource:
    """Return the source of the key: what was given, else RECALL_API_KEY, else the file named by
    RECALL_API_KEY_FILE, else none.

    Raises:
        InvalidSettings: The key has characters that no key has.
    """
    if callable(given):
        return KeySource(clock, ask=given)
    key = (os.environ.get("RECALL_API_KEY") or None) if given is None else given
    if key is not None:
        if not _is_key(key.strip()):
            raise InvalidSettings(
                "the key for the Recall server is empty or has characters that no key has: "
                "give it as it was shown when it was made"
            )
        return KeySource(clock, key=key.strip())
    path = os.environ.get("RECALL_API_KEY_FILE")
    return KeySource(clock, ask=Path(path).read_text if path else None)


def namespace_of(given: ApiKey | None) -> str:
    """Return the namespace of the key that would be shown, as far as one can tell without asking
    for it: "" if a function returns it, or if it is none of a Recall server's."""
    key = "" if callable(given) else given or os.environ.get("RECALL_API_KEY") or _in_file()
    return key.strip().rpartition(".")[2] if key.startswith("recall_") and "." in key else ""


def _in_file() -> str:
    path = os.environ.get("RECALL_API_KEY_FILE")
    try:
        return Path(path).read_text() if path else ""
    except (OSError, ValueError):  # said when it is asked for
        return ""


async def _asked(ask: _Ask) -> str:
    try:
        if inspect.iscoroutinefunction(ask):
            key: object = await ask()
        else:
            key = await anyio.to_thread.run_sync(ask, abandon_on_cancel=True)
    except OSError as error:
        raise KeyRefused(f"the key could not be read: {error}") from error
    except Exception as error:  # its text may hold a secret
        raise KeyRefused(f"the key could not be had: {type(error).__name__}") from error
    if not isinstance(key, str) or not _is_key(key.strip()):
        raise KeyRefused("what was given as the key is empty or has characters that no key has")
    return key.strip()


def _is_key(key: str) -> bool:
    return bool(key) and key.isascii() and key.isprintable() and " " not in key
