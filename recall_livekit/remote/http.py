"""HTTP to a Recall server: the one module that knows the HTTP library.

What the network or a proxy does is a `StoreUnavailable` here; what a server says is the very
error that it raised. No text that leaves this module has the key in it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Literal, NamedTuple, TypeVar

import anyio
import httpx2 as httpx
from httpx2 import AsyncClient
from pydantic import BaseModel, ValidationError

from ..errors import Closed, RecallError, StoreUnavailable
from ..settings import Settings
from ..wire import BODY_BYTES
from .keys import KeySource
from .refusals import Raises, refusal

__all__ = ["AsyncClient", "Http", "Unreachable"]

KEEP_ALIVE = 60.0
"""How long an idle connection is kept (seconds): less than a server keeps it."""

_T = TypeVar("_T", bound=BaseModel)
_Method = Literal["GET", "POST", "PUT", "DELETE"]
_Params = Mapping[str, str | int | bool]
_UNREACHED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
_CUT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)


class Unreachable(StoreUnavailable):
    """No connection could be made: the server has seen nothing of the request."""


class _Asked(NamedTuple):
    """One request, and the longest that may pass without a word of its answer."""

    method: _Method
    path: str
    params: _Params | None
    body: bytes | None
    wait: float


class Http:
    """Sends requests to one server. Opens nothing before the first."""

    def __init__(
        self, address: str, keys: KeySource, settings: Settings, client: AsyncClient | None = None
    ) -> None:
        """Use `client` if given; it is not closed here then."""
        self.address = address
        self._keys = keys
        self._settings = settings
        self._given = client is not None
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `aclose` was called: every request is refused."""
        return self._closed

    # --- requests -------------------------------------------------------------------------------

    async def ask(
        self,
        answer: type[_T],
        method: _Method,
        path: str,
        *,
        params: _Params | None = None,
        body: bytes | None = None,
        raises: Raises = (),
        seconds: float | None = None,
    ) -> _T:
        """Return the answer to a request. `seconds` is instead of `request_wait`.

        Raises:
            StoreUnavailable, KeyRefused: It was not answered, or not by a Recall server.
            RecallError: One of `raises`; whatever else a server may say is StoreUnavailable.
        """
        asked = _Asked(method, path, params, body, seconds or self._settings.request_wait)
        content = await self._answered(asked, 200, raises)
        try:
            return answer.model_validate_json(content)
        except ValidationError as error:
            raise self._garbled() from error

    async def tell(
        self,
        method: _Method,
        path: str,
        *,
        body: bytes | None = None,
        raises: Raises = (),
        seconds: float | None = None,
    ) -> None:
        """Return when the server says that it is done.

        Raises:
            RecallError: As in `ask`.
        """
        asked = _Asked(method, path, None, body, seconds or self._settings.request_wait)
        await self._answered(asked, 204, raises)

    async def lines(
        self,
        path: str,
        *,
        params: _Params | None = None,
        silence: float,
        raises: Raises = (),
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer as they come, until the server ends it.

        Raises:
            StoreUnavailable: It broke, or nothing came for `silence` seconds.
            RecallError: As in `ask`.
        """
        try:
            with anyio.fail_after(silence):
                response = await self._send(_Asked("GET", path, params, None, silence))
            try:
                if response.status_code != 200:
                    raise self._refusal(response, await response.aread(), raises)
                async with aclosing(_split(response.aiter_bytes())) as lines:
                    async for line in lines:
                        yield line
            finally:
                await response.aclose()
        except TimeoutError as error:
            raise self._silent(silence) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._unavailable(error) from error

    async def aclose(self) -> None:
        """Close the connections, if they are ours."""
        self._closed = True
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()

    # --- inside -------------------------------------------------------------------------------

    async def _answered(self, asked: _Asked, expected: int, raises: Raises) -> bytes:
        try:
            with anyio.fail_after(asked.wait):
                response, content = await self._exchange(asked)
        except TimeoutError as error:
            raise self._silent(asked.wait) from error
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._unavailable(error) from error
        if response.status_code == expected:
            return content
        if response.is_success:
            raise self._garbled()
        raise self._refusal(response, content, raises)

    async def _exchange(self, asked: _Asked) -> tuple[httpx.Response, bytes]:
        """Send, and once more at once if the connection was closed under us: a server may do so
        with one that was idle, and whatever we send does no more when it is sent twice."""
        try:
            return await self._read(asked)
        except _CUT:
            return await self._read(asked)

    async def _read(self, asked: _Asked) -> tuple[httpx.Response, bytes]:
        response = await self._send(asked)
        try:
            return response, await response.aread()
        finally:
            await response.aclose()

    async def _send(self, asked: _Asked) -> httpx.Response:
        """Return the response, not read yet; a key that was refused is asked for anew."""
        client = await self._ready()
        key = await self._keys.current()
        response = await self._send_with(client, asked, key)
        if response.status_code == 401 and await self._renewed(key, response):
            response = await self._send_with(client, asked, await self._keys.current())
        return response

    async def _renewed(self, key: str | None, refusal: httpx.Response) -> bool:
        try:
            renewed = await self._keys.renewed(key)
        except BaseException:
            await refusal.aclose()
            raise
        if renewed:
            await refusal.aclose()
        return renewed

    async def _send_with(
        self, client: AsyncClient, asked: _Asked, key: str | None
    ) -> httpx.Response:
        headers = {"accept": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        if asked.body is not None:
            headers["content-type"] = "application/json"
        try:
            request = client.build_request(
                asked.method,
                self.address + asked.path,
                params=asked.params,
                content=asked.body,
                headers=headers,
                timeout=httpx.Timeout(asked.wait, connect=self._settings.connect_wait),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise StoreUnavailable(f"no request can be made of this: {error}") from error
        return await client.send(request, stream=True, follow_redirects=False)

    async def _ready(self) -> AsyncClient:
        """Return the client; ours is of the running event loop, which may be another by now."""
        if self._closed:
            raise Closed("the handle on the Recall server was closed")
        loop = asyncio.get_running_loop()
        if not self._given and self._loop is not loop:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if self.address.startswith("https:"):  # reading the certificates takes 30 ms
                context = await anyio.to_thread.run_sync(httpx.create_ssl_context)
            if self._loop is not loop:
                self._client, self._loop = _client(context), loop
        assert self._client is not None
        if self._client.is_closed:
            raise Closed("the http_client of this handle was closed")
        return self._client

    @staticmethod
    def _refusal(response: httpx.Response, content: bytes, raises: Raises) -> RecallError:
        said = f"{response.status_code} {response.reason_phrase}".strip()
        return refusal(response.status_code, said, response.headers, content, raises)

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        kind = type(error).__name__
        text = f"{self.address}: {error} ({kind})" if str(error) else f"{self.address}: {kind}"
        return Unreachable(text) if isinstance(error, _UNREACHED) else StoreUnavailable(text)

    def _silent(self, seconds: float) -> StoreUnavailable:
        return StoreUnavailable(f"{self.address} did not answer within {seconds:g} s")

    def _garbled(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.address} answered what no Recall server says: is a proxy or another service "
            "at this address?"
        )


def _client(context: ssl.SSLContext) -> AsyncClient:
    """Return a client without a cap on connections: each call keeps a stream open.

    The kernel looks after idle connections, so that one that leads nowhere any more (a cable, a
    NAT) is not the next request's.
    """
    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE
    )
    transport = httpx.AsyncHTTPTransport(
        verify=context, limits=limits, socket_options=_socket_options()
    )
    return AsyncClient(transport=transport, headers={"user-agent": "recall-livekit"})


def _socket_options() -> list[tuple[int, int, int]]:
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


async def _split(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield whole lines; what never ends a line is not kept for ever."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > BODY_BYTES:
            raise StoreUnavailable("a line of a stream is larger than any that a server sends")
