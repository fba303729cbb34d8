"""A payment provider, small and fake: a process of its own, and the way to ask it.

`python -m half_said_demo.payments LEDGER` listens on this machine and writes each charge to the
file. It knows no idempotency keys: asked twice, it charges twice. The demo decides when it takes
the money and when it answers, so that a worker can be killed before and after.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from recovery.line import Line

__all__ = ["Ledger", "Payments"]

FIRST_RECEIPT = 1001
ANSWER_S = 10.0


class Payments:
    """The provider, as a worker asks it."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def charge(self, order: str, cents: int) -> int:
        """Charge the caller's card for an order; return the receipt."""
        receipt: int = (await self._ask(ask="charge", order=order, cents=cents))["receipt"]
        return receipt

    async def find(self, order: str) -> int | None:
        """Return the receipt of an order's charge, None if it was not charged."""
        receipt: int | None = (await self._ask(ask="find", order=order))["receipt"]
        return receipt

    async def _ask(self, **request: object) -> dict[str, Any]:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            with closing(writer):
                writer.write(json.dumps(request).encode() + b"\n")
                answer: dict[str, Any] = json.loads(await reader.readline())
                return answer


class Ledger:
    """Every charge that was made, in a file: what the caller really paid."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def charges(self) -> list[dict[str, Any]]:
        """All of them, oldest first: order, cents and receipt."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [json.loads(line) for line in lines]

    def receipts(self, order: str) -> list[int]:
        """The receipts of all charges for an order."""
        return [charge["receipt"] for charge in self.charges() if charge["order"] == order]

    def take(self, order: str, cents: int) -> int:
        """Make a charge, on disk; return its receipt."""
        receipt = FIRST_RECEIPT + len(self.charges())
        with self._path.open("a") as ledger:
            ledger.write(json.dumps({"order": order, "cents": cents, "receipt": receipt}) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        return receipt


class RequestLost(Exception):
    """Nobody answers it."""


class Provider:
    """Answers one request a connection; a charge takes the steps that the demo orders."""

    def __init__(self, ledger: Ledger, line: Line) -> None:
        self._ledger = ledger
        self._line = line

    async def serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server:
            self._line.tell("listening", port=server.sockets[0].getsockname()[1])
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            request = json.loads(await reader.readline())
            with suppress(RequestLost):
                find = request["ask"] == "find"
                receipt = self._find(request) if find else await self._charge(request)
                writer.write(json.dumps({"receipt": receipt}).encode() + b"\n")

    def _find(self, request: Mapping[str, Any]) -> int | None:
        receipts = self._ledger.receipts(request["order"])
        receipt = receipts[-1] if receipts else None
        self._line.tell("found", order=request["order"], receipt=receipt)
        return receipt

    async def _charge(self, request: Mapping[str, Any]) -> int:
        order, cents = request["order"], request["cents"]
        self._line.tell("asked", order=order, cents=cents)
        if (await self._line.orders.get()).kind == "lose":
            self._line.tell("lost", order=order)
            raise RequestLost
        receipt = self._ledger.take(order, cents)
        self._line.tell("taken", order=order, cents=cents, receipt=receipt)
        await self._line.orders.get()
        return receipt


async def main(ledger: str) -> None:
    await Provider(Ledger(Path(ledger)), Line()).serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
