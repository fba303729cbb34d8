"""POST requests over connections that are kept, as fast as the answers come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """What came of it: seconds of each request, and of all."""

    took: Sequence[float]
    seconds: float

    @property
    def rate(self) -> float:
        return len(self.took) / self.seconds


class Connection:
    """One connection, one request at a time, and cheap: the client is not what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(answer.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        content = await self._reader.readexactly(length)
        if b" 200 " not in answer[:15]:
            raise RuntimeError(content.decode())
        return content

    def close(self) -> None:
        self._writer.close()


async def load(port: int, path: str, bodies: Sequence[Callable[[], bytes]], seconds: float) -> Load:
    """One connection for each of `bodies`, which are asked for the next body each time."""
    connections = [await Connection.to(port) for _ in bodies]
    began = time.perf_counter()
    took = await asyncio.gather(
        *(
            _post(connection, path, body, began + seconds)
            for connection, body in zip(connections, bodies, strict=True)
        )
    )
    passed = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return Load([one for each in took for one in each], passed)


async def _post(
    connection: Connection, path: str, body: Callable[[], bytes], until: float
) -> list[float]:
    took: list[float] = []
    while (began := time.perf_counter()) < until:
        await asyncio.wait_for(connection.post(path, body()), WITHIN_S)
        took.append(time.perf_counter() - began)
    return took
