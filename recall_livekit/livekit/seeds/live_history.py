"""The history at a realtime model's side, changed by one after the other.

LiveKit changes it by a copy: it adds what was said by `session.say` to what is confirmed so far,
placed by time, and everything that is not in the copy is deleted. So what is confirmed while such
a change waits for the one before it would be lost, and a history of ours that is confirmed while
something is said would stand behind it: the time of a confirmed item is that of its confirmation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from livekit.agents import llm

__all__ = ["LiveHistory"]

Live = llm.RealtimeSession[Any]


class LiveHistory:
    """Keeps the history of a realtime model whole, and in the order in which things were said."""

    def __init__(self) -> None:
        """No model is watched yet."""
        self._turn = asyncio.Lock()
        self._watched: WeakSet[Live] = WeakSet()
        self._said_at: dict[str, float] = {}
        self._mine: tuple[asyncio.Task[Any] | None, llm.ChatContext] | None = None

    @contextmanager
    def change(self, live: Live, items: Sequence[llm.ChatItem]) -> Iterator[None]:
        """Within this block this task adds these items, to the history as it is now."""
        self._watch(live)
        self._said_at = {item.id: item.created_at for item in items}
        self._mine = asyncio.current_task(), live.chat_ctx
        try:
            yield
        finally:
            self._mine = None

    def _watch(self, live: Live) -> None:
        if live in self._watched:
            return
        self._watched.add(live)
        live.on("remote_item_added", self._confirmed)
        update = live.update_chat_ctx

        async def in_turn(chat_ctx: llm.ChatContext) -> None:
            mine = self._mine and self._mine[0] is asyncio.current_task()
            was = self._mine[1] if self._mine and mine else live.chat_ctx
            async with self._turn:
                await update(_rebased(chat_ctx, was, live.chat_ctx))

        live.update_chat_ctx = in_turn  # type: ignore[method-assign]

    def _confirmed(self, event: llm.RemoteItemAddedEvent) -> None:
        event.item.created_at = self._said_at.get(event.item.id, event.item.created_at)


def _rebased(
    wanted: llm.ChatContext, was: llm.ChatContext, live: llm.ChatContext
) -> llm.ChatContext:
    """Return a context that changes what is there now as `wanted` changes what was there."""
    known = {item.id for item in was.items}
    if all(item.id in known for item in live.items):
        return wanted
    there = {item.id for item in live.items}
    mine = {item.id: item for item in wanted.items}
    kept = [item for item in live.items if item.id in mine or item.id not in known]
    context = llm.ChatContext([mine.get(item.id, item) for item in kept])
    context.insert([item for item in wanted.items if item.id not in there])
    return context
