"""Several reads at once: a store answers them in one go where it can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio

__all__ = ["both", "first_of", "together"]

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


async def both(one: Awaitable[A], other: Awaitable[B]) -> tuple[A, B]:
    """Return both answers; errors are as in `together`."""
    answers: list[Any] = await together([one, other])
    return answers[0], answers[1]


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Return when the first of them has; the others are cancelled."""
    async with anyio.create_task_group() as tasks:

        async def one(wait: Callable[[], Awaitable[object]]) -> None:
            await wait()
            tasks.cancel_scope.cancel()

        for wait in waits:
            tasks.start_soon(one, wait)


async def together(reads: Sequence[Awaitable[T]]) -> list[T]:
    """Return all answers, in order.

    Raises:
        StoreError: The first of those that failed; all have ended by then.
    """
    answers: dict[int, T] = {}
    failed: list[Exception] = []

    async def one(place: int, read: Awaitable[T]) -> None:
        try:
            answers[place] = await read
        except Exception as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for place, read in enumerate(reads):
            tasks.start_soon(one, place, read)
    if failed:
        raise failed[0]
    return [answers[place] for place in range(len(reads))]
