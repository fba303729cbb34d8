"""HTTP/1.1 as uvicorn speaks it, with bounds on what comes before a request is known.

Nobody has shown a key by then, so a request's head is small and comes soon, or the connection is
closed. What follows the head is bounded where it is read.
"""

from __future__ import annotations

import asyncio

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES", "HEAD_SECONDS", "BoundedProtocol"]

HEAD_BYTES = 64 * 1024
"""The largest head of a request: its line and its headers."""
HEAD_SECONDS = 10.0
"""How long a head may take to arrive, from the connection or from its first byte on."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose next request does not come in time, or in bounds."""

    _head = 0
    _in_head = True
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless it makes the head too large."""
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("the head of the request is too large")

    def on_message_begin(self) -> None:
        """A request begins; on a connection that was kept, its time begins here."""
        super().on_message_begin()
        self._in_head = True
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there: what follows is the request's own business."""
        self._in_head, self._head = False, 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuse a head that came in one piece, and is too large all the same."""
        if len(name) + len(value) > HEAD_BYTES:
            raise httptools.HttpParserError("the head of the request is too large")
        super().on_header(name, value)

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
