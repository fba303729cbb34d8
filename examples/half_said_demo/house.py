"""Who takes part in one call, and where everything of it lives."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from recovery.cast import Cast, cast
from recovery.command import START_S

from .payments import Ledger
from .story import PROVIDER, Provider, Worker

__all__ = ["House", "house"]


@dataclass(frozen=True, slots=True)
class House:
    """A payment provider, and warm workers, of which one has the call at a time."""

    cast: Cast
    provider: Provider
    workers: Sequence[Worker]
    ledger: Ledger
    records: Path
    call_id: str

    def heads(self, first: Worker, second: Worker) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """What the columns are headed with: pids, and names."""
        shown = (first, second, self.provider)
        return tuple(one.pid for one in shown), tuple(one.name for one in shown)


@asynccontextmanager
async def house(directory: Path, mode: str, *, workers: int) -> AsyncIterator[House]:
    """All are ready inside; whatever happens there, all are gone at the end."""
    ledger, records = directory / f"{mode}-payments.jsonl", directory / "records"
    url, call_id = f"sqlite:///{quote(str(records))}", f"room-{secrets.token_hex(4)}"
    async with cast() as players:
        log = directory / f"{mode}-payments.log"
        provider = players.join(await Provider.start(PROVIDER, log, str(ledger), name="payments"))
        port = await _port(players)
        hired = [
            players.join(await _worker(number, directory, mode, url, call_id, port))
            for number in range(1, workers + 1)
        ]
        await _warm(players, workers)
        yield House(players, provider, hired, Ledger(ledger), records, call_id)


async def _worker(number: int, directory: Path, *arguments: str) -> Worker:
    """Start one; every second one is shown in the same column."""
    log = directory / f"{arguments[0]}-worker-{number}.log"
    return await Worker.start(2 - number % 2, log, *arguments, name=f"worker {number}")


async def _port(players: Cast) -> str:
    """Wait until the provider listens."""
    told: list[str] = []
    await players.until(
        lambda: told, lambda _, event: told.append(str(event["port"])), within=START_S
    )
    return told[0]


async def _warm(players: Cast, count: int) -> None:
    """Wait until all workers have loaded everything; it is the first that each of them tells."""
    told: list[str] = []
    await players.until(
        lambda: len(told) == count, lambda _, event: told.append(event.kind), within=START_S
    )
